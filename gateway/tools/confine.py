"""Confines this process with Landlock and seccomp, then becomes another program (models 8, tier B).

Run by its path, `python -I -S confine.py <setting>… -- <program> <argument>…`, so that nothing but the
standard library is loaded: filters belong into a process of their own, not between fork and exec of a
program with threads. A setting is `ro:<path>`, `rw:<path>`, `network` or `<limit>=<number>`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress

# linux/landlock.h; the system call numbers are the same on every architecture.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK, _REFER, _TRUNCATE, _IOCTL_DEV = 1 << 6, 1 << 11, 1 << 13, 1 << 14, 1 << 15
_OF_ABI_1 = (1 << 13) - 1
_TCP = 0b11  # bind and connect
_SCOPES = 0b11  # abstract sockets, and signals to processes outside
_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2

# linux/seccomp.h and linux/filter.h
_ALLOW, _FAIL, _KILL = 0x7FFF_0000, 0x0005_0000, 0x8000_0000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_AT_NUMBER, _AT_ARCH, _AT_FIRST_ARGUMENT = 0, 4, 16
_EPERM, _ENOSYS = 1, 38
_X32 = 0x4000_0000
_NEW_NAMESPACES = 0x7E02_0080
_INTERNET = (2, 10, 16)  # AF_INET, AF_INET6, AF_NETLINK, which looks up addresses

# Landlock leaves these open. What changes the mode, owner or attributes of a file by its path only pretends
# to work, as in fakeroot: git, tar and cp give up when it fails.
_PRETENDED = {
    "x86_64": (90, 92, 94, 260, 268, 452, 188, 189, 197, 198, 463, 466),
    "aarch64": (53, 54, 452, 5, 6, 14, 15, 463, 466),
}
# What cuts files, reaches into other processes, mounts, makes namespaces, loads code into the kernel or
# handles its keys; and setsid, because everything is ended by its session.
_FORBIDDEN = {
    "x86_64": (
        *(76, 101, 310, 311, 312, 438),  # truncate ptrace process_vm_readv/writev kcmp pidfd_getfd
        *(165, 166, 155, 161, 428, 429, 430, 431, 432, 442),  # mount and its kin, pivot_root, chroot
        *(272, 308, 321, 298, 323, 425, 426, 427),  # unshare setns bpf perf_event_open userfaultfd io_uring
        *(248, 249, 250, 303, 304, 112),  # add_key request_key keyctl, file handles, setsid
    ),
    "aarch64": (
        *(45, 117, 270, 271, 272, 438),
        *(40, 39, 41, 51, 428, 429, 430, 431, 432, 442),
        *(97, 268, 280, 241, 282, 425, 426, 427),
        *(217, 218, 219, 264, 265, 157),
    ),
}
_NUMBERS = {"x86_64": (0xC000_003E, 41, 56, 435), "aarch64": (0xC000_00B7, 198, 220, 435)}
_SIGNALS = {"x86_64": (62, 129, 200, 297, 424), "aarch64": (129, 138, 130, 240, 424)}

_LIMITS = {
    "cpu": resource.RLIMIT_CPU,
    "memory": resource.RLIMIT_AS,
    "file": resource.RLIMIT_FSIZE,
    "files": resource.RLIMIT_NOFILE,
    "core": resource.RLIMIT_CORE,
}


def abi() -> int:
    """Return the version of Landlock that the kernel speaks, 0 if none or if seccomp is not known here."""
    if sys.platform != "linux" or platform.machine() not in _NUMBERS:
        return 0
    return max(0, int(_libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG)))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _landlock(readable: Sequence[str], writable: Sequence[str], *, network: bool) -> None:
    """Allow only files beneath these paths; missing ones are passed over. Raises: OSError."""
    version = abi()
    rights = _OF_ABI_1 | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    rights |= _IOCTL_DEV if version >= 5 else 0
    attributes = struct.pack(
        "=QQQ", rights, 0 if network or version < 4 else _TCP, _SCOPES if version >= 6 else 0
    )
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _checked(_libc().syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(size), 0))
    for path in readable:
        _allow(ruleset, path, _EXECUTE | _READ_FILE | _READ_DIR)
    for path in writable:
        _allow(ruleset, path, rights & ~(_MAKE_CHAR | _MAKE_BLOCK))
    _checked(_libc().prctl(_NO_NEW_PRIVS, 1, 0, 0, 0))
    _checked(_libc().syscall(_RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    if not os.path.isdir(path):  # noqa: PTH112 - pathlib would cost 5 ms at every command
        rights &= _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
    _checked(_libc().syscall(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, handle), 0))
    os.close(handle)


def _seccomp(*, network: bool) -> None:
    """Forbid what Landlock leaves open. Raises: OSError."""
    program = _program(platform.machine(), network=network, signals=abi() >= 6)
    code = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    _checked(_libc().prctl(_NO_NEW_PRIVS, 1, 0, 0, 0))
    _checked(_libc().prctl(_SET_SECCOMP, _FILTER, ctypes.create_string_buffer(head), 0, 0))


def _program(machine: str, *, network: bool, signals: bool) -> bytes:
    """Return the filter; without `signals` none may be sent, because Landlock can't keep them inside."""
    arch, socket, clone, clone3 = _NUMBERS[machine]
    steps = [_step(_LOAD, _AT_ARCH), _step(_EQUAL, arch, 1, 0), _step(_RETURN, _KILL)]
    steps += [_step(_LOAD, _AT_NUMBER), _step(_AT_LEAST, _X32, 0, 1), _step(_RETURN, _FAIL | _EPERM)]
    for number in _PRETENDED[machine]:
        steps += [_step(_EQUAL, number, 0, 1), _step(_RETURN, _FAIL)]
    for number in (*_FORBIDDEN[machine], *(() if signals else _SIGNALS[machine])):
        steps += [_step(_EQUAL, number, 0, 1), _step(_RETURN, _FAIL | _EPERM)]
    # glibc falls back to clone, whose flags can be looked at.
    steps += [_step(_EQUAL, clone3, 0, 1), _step(_RETURN, _FAIL | _ENOSYS)]
    steps += [_step(_EQUAL, clone, 0, 4), _step(_LOAD, _AT_FIRST_ARGUMENT)]
    steps += [_step(_ANY_BIT, _NEW_NAMESPACES, 0, 1), _step(_RETURN, _FAIL | _EPERM), _step(_RETURN, _ALLOW)]
    families = _INTERNET if network else ()
    steps += [_step(_EQUAL, socket, 0, len(families) + 2), _step(_LOAD, _AT_FIRST_ARGUMENT)]
    steps += [_step(_EQUAL, family, len(families) - at, 0) for at, family in enumerate(families)]
    steps += [_step(_RETURN, _FAIL | _EPERM), _step(_RETURN, _ALLOW)]
    return b"".join(steps)


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("HBBI", code, yes, no, value)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _limit(name: str, value: int) -> None:
    _, most = resource.getrlimit(_LIMITS[name])
    if most != resource.RLIM_INFINITY:
        value = min(value, most)
    with suppress(ValueError, OSError):
        resource.setrlimit(_LIMITS[name], (value, value))


def main(arguments: Sequence[str]) -> None:
    """Become the program after `--`. Raises: OSError when a confinement or the program fails."""
    cut = arguments.index("--")
    settings, command = arguments[:cut], [*arguments[cut + 1 :]]
    network = "network" in settings
    readable = [one[3:] for one in settings if one.startswith("ro:")]
    writable = [one[3:] for one in settings if one.startswith("rw:")]
    for name, _, value in (one.partition("=") for one in settings if one.partition("=")[0] in _LIMITS):
        _limit(name, int(value))
    _landlock(readable, writable, network=network)
    _seccomp(network=network)
    _become(command)


def _become(command: list[str]) -> None:
    """Look for a program as a shell does; os.execvp would import what can't be read any more."""
    problem: OSError = FileNotFoundError(errno.ENOENT, f"{command[0]}: command not found")
    folders = [""] if "/" in command[0] else [f"{one}/" for one in os.environ.get("PATH", "").split(":")]
    for folder in folders:
        try:
            os.execv(f"{folder}{command[0]}", command)  # noqa: S606 - without a shell is the point
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                problem = error
    raise problem


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except OSError as error:
        sys.stderr.write(f"{error.strerror or error}\n")
        sys.exit(127 if error.errno == errno.ENOENT else 126)
