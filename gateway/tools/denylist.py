"""What a command line may do, as far as its text tells: advice for asking a person, and what never runs.

No text filter keeps anybody inside: that is the sandbox's work (decision 7). This one errs on the side of
asking. What is on seed 004's list is refused for good, however it is quoted or wrapped.
"""

from __future__ import annotations

import fnmatch
import functools
import itertools
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from gateway.tools.shellwords import Line, Segment, Word, parse

MAX_DEPTH = 6

_LONG = 1000
"""Characters of a command line that are read through in a millisecond or two."""


class Verdict(IntEnum):
    """What the text of a command tells; the greater one wins when commands are joined."""

    LISTED = 0
    SAFE = 1
    UNCLEAR = 2
    NEVER = 3


@dataclass(frozen=True, slots=True)
class Judgement:
    """`reason` completes "asked because …"; `network`: it surely needs one."""

    verdict: Verdict
    reason: str = ""
    network: bool = False

    def __or__(self, other: Judgement) -> Judgement:
        worse = other if other.verdict > self.verdict else self
        return replace(worse, network=self.network or other.network)


_LISTED, _SAFE = Judgement(Verdict.LISTED), Judgement(Verdict.SAFE)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Seed 004: `rm -rf /`, `sudo`, `shutdown`, `reboot`, `> /dev/`; and their next of kin.
_STOPS = "it stops the whole machine"
_NEVER = {
    **dict.fromkeys(_names("sudo sudoedit doas pkexec su runuser"), "it takes somebody else's rights"),
    **dict.fromkeys(_names("shutdown reboot halt poweroff telinit kexec"), _STOPS),
    **dict.fromkeys(
        _names("mkfs mke2fs mkswap wipefs fdisk sfdisk cfdisk gdisk parted blkdiscard"), "it wipes a disk"
    ),
}
_ASKED = {
    **dict.fromkeys(
        _names(
            "parallel watch script expect screen tmux dtach at batch entr gdb trap alias let enable"
            " complete bind mapfile readarray hash"
        ),
        "it starts commands of its own",
    ),
    **dict.fromkeys(_names("ed ex vi vim nvim emacs nano pico"), "it is an editor"),
    **dict.fromkeys(_names("shred srm unlink pkill killall"), "it looks destructive"),
    **dict.fromkeys(
        _names(
            "crontab systemctl service launchctl mount umount insmod modprobe rmmod iptables"
            " ip6tables nft sysctl useradd usermod userdel groupadd passwd chpasswd visudo chsh"
            " swapoff nsenter unshare chroot setcap"
        ),
        "it changes the system",
    ),
}
_SHELLS = _names("sh bash rbash dash ash zsh ksh mksh fish csh tcsh")
_INTERPRETERS = _names(
    "perl ruby irb node nodejs deno bun php lua tclsh wish guile osascript pwsh r rscript julia ghci"
    " groovy scala jshell swift erl elixir ocaml"
)
# They print or look at what they are given and start nothing, so words in it are only words.
_INERT = _names(
    "echo printf grep egrep fgrep rg ag cat ls head tail wc which type whereis true false : cut tr"
    " uniq nl stat file basename dirname tac pwd date diff cmp md5sum sha256sum jq seq rev fold paste"
    " du df realpath readlink column comm od xxd strings id whoami uname sleep cd"
)
# They may do much, but they start none of their words as a program.
_TOOLS = _names(
    "mkdir rmdir touch sort split join tar gzip gunzip bzip2 xz zip unzip zstd make cmake ninja gcc"
    " g++ cc clang ld ar npm yarn pnpm pip pytest ruff mypy black tox cargo rustc go javac java mvn"
    " gradle dotnet convert magick ffmpeg ffprobe pdftotext pandoc sqlite3 psql tesseract tee cp mv ln"
    " install truncate rsync dd awk gawk mawk sed curl wget test [ [[ expr bc dc read export declare"
    " local set unset shift exit return source . kill wait chmod chown git jobs umask ulimit mktemp"
    " nproc free ps top uptime hostname arch numfmt iconv dos2unix patch"
)
_GIT_INERT = _names(
    "add blame branch commit describe diff grep init log ls-files mv notes rev-parse rm shortlog show"
    " stash status switch tag"
)
_GIT_THROWS_AWAY = {
    "push": _names("-f --force --force-with-lease --mirror --delete -d"),
    "reset": _names("--hard"),
    "branch": _names("-D"),
    "checkout": _names("-- -f . --force"),
    "stash": _names("drop clear"),
    "tag": _names("-d --delete"),
}
_NETWORK = _names(
    "curl wget ssh scp sftp ftp nc ncat netcat telnet ping dig nslookup host traceroute whois rsync"
    " apt apt-get yum dnf apk brew npx uvx gh aws gcloud az kubectl docker podman helm terraform http"
    " aria2c yt-dlp"
)
_FETCHES: Mapping[str, frozenset[str]] = {
    "git": _names("clone fetch pull push ls-remote submodule"),
    "pip": _names("install download index"),
    "npm": _names("install i ci update publish view audit search add"),
    "yarn": _names("add install upgrade"),
    "pnpm": _names("add install i update"),
    "cargo": _names("install fetch update publish search"),
    "go": _names("get install"),
    "gem": _names("install update"),
    "uv": _names("pip add sync tool"),
    "poetry": _names("add install update"),
    "conda": _names("install create update"),
    "bundle": _names("install update"),
    "composer": _names("install require update"),
}
_RISKY = _names("chmod chown systemctl init")
_WRITERS = _names("tee dd cp mv install ln truncate shred rsync sponge")
_HARMLESS_DEVICES = re.compile(
    r"/dev/(null|zero|full|u?random|std(in|out|err)|tty|fd/\d+|shm/.*)|/dev/(tcp|udp)/.*"
)
_OWN_PLACES = re.compile(r"(~|\$HOME|\$\{HOME\}|\$TMPDIR|\$\{TMPDIR\})/[\w./+-]*")
_DANGEROUS_NAMES = re.compile(
    r"PATH|HOME|TMPDIR|IFS|ENV|BASH_ENV|SHELL|SHELLOPTS|BASHOPTS|PS4|PROMPT_COMMAND|PAGER|EDITOR|VISUAL"
    r"|BROWSER|LESSOPEN"
    r"|(LD|DYLD|GIT|PYTHON|PERL5?|RUBY|NODE|BASH_FUNC|GCONV|MALLOC)_?\w*|CDPATH|GLOBIGNORE|HISTFILE|\w*_RCFILE"
)
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\[.*\])?\+?=", re.DOTALL)
_DANGEROUS_TEXT = re.compile(
    r"(?<![\w.-])(sudo|doas|pkexec|shutdown|reboot|poweroff|halt|mkfs(\.\w+)?|rm\s+-\w*[rR]|dd\s+if=|shred"
    r"|wipefs|eval)(?![\w-])|>\s*/dev/(?!null|std|tty|fd)|\|\s*(ba|z|da|k)?sh\b|`|\$\(",
    re.IGNORECASE,
)
_DANGEROUS_PYTHON = re.compile(
    r"\b(os|subprocess|shutil|pathlib|pty|ctypes|socket|http|urllib|importlib|runpy|code|builtins|modules|eval"
    r"|exec|compile|getattr|globals|locals|vars|open|input|breakpoint|help|pickle|marshal)\b|__|\\[x0-7uUN]"
)
_DANGEROUS_AWK = re.compile(r"system|getline|\||>\s*[\"(]|@")
_DANGEROUS_SED = re.compile(r"(^|[;{}\n\d$/])\s*[ewr]\b|[/|,#!@:][gpiImM\d]*[ew][gpiImM\d]*\s*($|[;\n}])")
_FORK_BOMB = re.compile(r"(?<![\w:.])([\w:.]{1,40})\(\)\{\1[|&]\1&?\};?\1?")


@dataclass(frozen=True, slots=True)
class _Wrapper:
    """How a program that starts another is called: options with a value, and words before the other."""

    valued: str = ""
    longs: frozenset[str] = frozenset()
    before: int = 0


_WRAPPERS: Mapping[str, _Wrapper] = {
    "nice": _Wrapper("n", _names("--adjustment")),
    "nohup": _Wrapper(),
    "setsid": _Wrapper(),
    "timeout": _Wrapper("ks", _names("--signal --kill-after"), 1),
    "stdbuf": _Wrapper("ioe", _names("--input --output --error")),
    "ionice": _Wrapper("cn", _names("--class --classdata")),
    "time": _Wrapper("fo", _names("--format --output")),
    "command": _Wrapper(),
    "builtin": _Wrapper(),
    "exec": _Wrapper("a"),
    "env": _Wrapper("uC", _names("--unset --chdir")),
    "xargs": _Wrapper("adEIiLlnPs", _names("--arg-file --delimiter --max-args --max-procs")),
    "busybox": _Wrapper(),
    "toybox": _Wrapper(),
    "chrt": _Wrapper("TPD", before=1),
    "taskset": _Wrapper(before=1),
    "flock": _Wrapper("wE", _names("--timeout --wait --conflict-exit-code"), 1),
    "strace": _Wrapper("aeEIoOpPsSuUX"),
    "ltrace": _Wrapper("aeosu"),
    "unbuffer": _Wrapper(),
    "caffeinate": _Wrapper("tw"),
    "setarch": _Wrapper(before=1),
    "prlimit": _Wrapper(),
    "torsocks": _Wrapper(),
    "xvfb-run": _Wrapper("nspfew"),
}


def judge(command: str, allow: Sequence[str] = ()) -> Judgement:
    """Say what a command line is: refused for good, to be asked about, harmless by its looks, or listed.

    `allow` are globs: a name alone lists a program with whatever arguments; more words are compared one
    by one, and a last `*` stands for any number of them.
    """
    return _line(command, tuple(entry.split() for entry in allow if entry.split()), 0)


@functools.lru_cache(maxsize=256)
def fetches(command: str) -> bool:
    """Return whether a command line brings something from the network, as far as its text tells.

    Of long ones only the names are looked at: this is asked again and again, where nobody may wait.
    """
    if len(command) <= _LONG:
        return judge(command).network
    return not (_NETWORK | _FETCHES.keys()).isdisjoint(re.findall(r"[\w.+-]+", command))


def _line(command: str, allow: Sequence[Sequence[str]], depth: int) -> Judgement:
    if depth > MAX_DEPTH:
        return _unclear("it is nested too deeply")
    if _FORK_BOMB.search("".join(command.split())):
        return _never("it is a fork bomb")
    line = parse(command)
    judgement = _LISTED if line.segments else _unclear(line.unclear or "it holds no command")
    for segment in line.segments:
        judgement |= _segment(segment, line, allow, depth)
    if line.unclear:
        judgement |= _unclear(line.unclear)
    return judgement if line.plain else judgement | _SAFE


def _segment(segment: Segment, line: Line, allow: Sequence[Sequence[str]], depth: int) -> Judgement:
    judgement = _LISTED
    for word in segment.parts:
        for inner in word.inner:
            judgement |= _line(inner, (), depth + 1)
    for redirect in segment.redirects:
        judgement |= _redirect(redirect.operator, redirect.target)
    for word in segment.assignments:
        judgement |= _assignment(word.text)
    if not segment.words:
        return judgement | _SAFE
    call = _Call(segment.words, depth)
    judgement |= _called(call)
    if _is_shell(call.name):
        texts = [one.target.text for one in segment.redirects if one.operator == "<<<"]
        for document in (*line.documents, *texts):
            judgement |= _only_never(_line(document, (), depth + 1))
    return judgement if is_listed(segment.words, allow) else judgement | _SAFE


def _redirect(operator: str, target: Word) -> Judgement:
    if operator in ("<<", "<<-", "<<<", "<"):
        return _SAFE
    if target.inner or (target.expands and not _OWN_PLACES.fullmatch(target.text)):
        return _unclear("where it writes to is not known")
    if operator in (">&", "<&") and re.fullmatch(r"\d+-?|-", target.text):
        return _SAFE
    return _write(target.text)


def _write(path: str) -> Judgement:
    """Judge a file that is written to."""
    path = _normal(path)
    if path.startswith(("/dev/tcp/", "/dev/udp/")):
        return replace(_unclear("it opens a connection"), network=True)
    if _is_device(path) or path == "/proc/sysrq-trigger":
        return _never("it writes to a device")
    return _unclear("it writes into the system") if path.startswith(("/proc/", "/sys/")) else _SAFE


def _assignment(text: str) -> Judgement:
    match = _ASSIGNED.match(text)
    if match and (match[2] or _DANGEROUS_NAMES.fullmatch(match[1])):
        return _unclear(f"it sets {match[1]}")
    return _SAFE


def is_listed(words: Sequence[Word], allow: Sequence[Sequence[str]]) -> bool:
    """Return whether the words are what an entry allows, or a plain wrapper around such words."""
    if any(word.inner for word in words):
        return False
    texts = [word.text for word in words]
    name = posixpath.basename(texts[0])
    if name in _WRAPPERS or _is_shell(name):
        # What a wrapper starts is what counts (security-exec-02), unless an entry names all of it.
        if any(len(entry) > 1 and _matches(texts, entry) for entry in allow):
            return True
        wrapper = _WRAPPERS.get(name)
        inner = words[1 + wrapper.before :] if wrapper and name not in ("env", "xargs", "exec") else ()
        return (
            bool(inner) and not any(text.startswith("-") for text in texts[1:2]) and is_listed(inner, allow)
        )
    return any(_matches(texts, entry) for entry in allow)


def _matches(texts: Sequence[str], entry: Sequence[str]) -> bool:
    if len(entry) == 1:
        # A program's name stands for all its arguments, but not for code that is one of them.
        return fnmatch.fnmatchcase(texts[0], entry[0]) and not _takes_code(texts)
    if entry[-1] == "*":
        entry = entry[:-1]
        if len(texts) < len(entry):
            return False
        texts = texts[: len(entry)]
    return len(texts) == len(entry) and all(map(fnmatch.fnmatchcase, texts, entry))


def _takes_code(texts: Sequence[str]) -> bool:
    name = posixpath.basename(texts[0])
    return (_is_python(name) or name in _INTERPRETERS) and any(
        re.match(r"-[a-zA-Z]*[ceEpr]|--(eval|print|command)", text) for text in texts[1:]
    )


@dataclass(frozen=True, slots=True)
class _Call:
    """One program with its arguments; `depth` is how often it was taken out of something."""

    words: Sequence[Word]
    depth: int

    @property
    def name(self) -> str:
        """Return the program without its folder, in small letters: some file systems know no others."""
        return posixpath.basename(self.words[0].text).lower()

    @property
    def arguments(self) -> Sequence[Word]:
        return self.words[1:]

    @property
    def texts(self) -> list[str]:
        return [word.text for word in self.arguments]

    @property
    def is_known(self) -> bool:
        """Return whether every argument is known."""
        return all(word.known for word in self.arguments)

    def inside(self, words: Sequence[Word]) -> _Call:
        return replace(self, words=words, depth=self.depth + 1)


def _called(call: _Call) -> Judgement:
    """Judge one program with its arguments."""
    if call.depth > MAX_DEPTH:
        return _unclear("it is nested too deeply")
    if not call.words[0].known or not call.name:
        return _unclear("which program it starts is not known before it runs")
    name = call.name
    if reason := _NEVER.get(name) or (_NEVER["mkfs"] if name.startswith("mkfs.") else ""):
        return _never(reason)
    judgement = Judgement(Verdict.LISTED, network=_needs_network(name, call.texts))
    if name in _ASKED:
        judgement |= _unclear(_ASKED[name])
    if rule := _rule(name):
        return judgement | rule(call)
    return judgement | (_LISTED if name in _INERT else _opaque(call))


def _rule(name: str) -> Callable[[_Call], Judgement] | None:
    if _is_shell(name):
        return _shell
    if _is_python(name):
        return _python
    if name in _INTERPRETERS:
        return _interpreter
    if name in _WRAPPERS:
        return _wrapper
    return _RULES.get(name)


def _rm(call: _Call) -> Judgement:
    texts = call.texts
    recursive = any(re.match(r"-[a-zA-Z]*[rR]|--r", text) for text in texts)
    if any(text.startswith("--no-p") for text in texts) or (recursive and any(map(_is_root, texts))):
        return _never("it deletes the system's files")
    if recursive or not call.is_known:
        return _unclear("it deletes whole folders, or files that are not known before")
    return _LISTED


def _chmod(call: _Call) -> Judgement:
    if any(re.match(r"-[a-zA-Z]*R|--r", text) for text in call.texts):
        if any(map(_is_root, call.texts)):
            return _never("it changes the system's files")
        return _unclear("it changes whole folders")
    return _opaque(call)


def _copy(call: _Call) -> Judgement:
    """Judge what writes to a path among its arguments."""
    for text in call.texts:
        path = text.removeprefix("of=") if call.name == "dd" else text
        if _is_device(_normal(path)) and not text.startswith("if="):
            return _never("it writes to a device")
    if not call.is_known and (call.name == "dd" or any(word.inner for word in call.arguments)):
        return _unclear("where it writes to is not known")
    if any(re.search(r"/s?bin/|/dev/null$", _normal(text)) for text in call.texts):
        return _unclear("it copies a program, or throws files away")
    return _opaque(call)


def _find(call: _Call) -> Judgement:
    judgement = _LISTED
    texts = call.texts
    for at, text in enumerate(texts):
        if text in ("-exec", "-execdir", "-ok", "-okdir"):
            end = next((i for i in range(at + 1, len(texts)) if texts[i] in (";", "+")), len(texts))
            inner = call.arguments[at + 1 : end]
            if not inner:
                return _unclear("it starts something")
            judgement |= _called(call.inside(inner))
            judgement |= _unclear("it hands file names to a shell") if runs_files(inner[0].text) else _SAFE
        elif text == "-delete" or text.startswith("-fprint") or text == "-fls":
            judgement |= _unclear("it deletes or writes what it finds")
    return judgement


def _git(call: _Call) -> Judgement:
    texts = call.texts
    at = next((i for i, text in enumerate(texts) if not text.startswith("-")), len(texts))
    if any(text.startswith(("-c", "--exec", "--config")) for text in texts[:at]):
        return _unclear("it configures git on the way")
    verb, rest = (texts[at] if at < len(texts) else ""), set(texts[at + 1 :])
    if verb == "-C":
        return _opaque(call)
    if verb in ("clean", "restore", "filter-branch", "gc", "reflog") or rest & _GIT_THROWS_AWAY.get(
        verb, frozenset()
    ):
        return _unclear("it throws work away")
    if verb in ("config", "bisect", "rebase", "difftool", "mergetool", "submodule"):
        return _unclear("git may start commands of its own")
    return _LISTED if verb in _GIT_INERT and call.is_known else _opaque(call)


def _kill(call: _Call) -> Judgement:
    return _unclear("it ends processes that it doesn't name") if "-1" in call.texts[-1:] else _opaque(call)


def _eval(call: _Call) -> Judgement:
    inner = _line(" ".join(call.texts), (), call.depth + 1)
    return _only_never(inner) | _unclear("it computes the command that it runs")


def _source(call: _Call) -> Judgement:
    if not call.is_known or not call.arguments or _normal(call.texts[0]).startswith("/dev/"):
        return _unclear("it runs what is not known before")
    return _LISTED


def _declare(call: _Call) -> Judgement:
    judgement = _opaque(call)
    for text in call.texts:
        judgement |= _assignment(text)
    return judgement


def _printf(call: _Call) -> Judgement:
    return _opaque(call) if "-v" in call.texts else _LISTED


def _test(call: _Call) -> Judgement:
    # Both may calculate with what a variable holds, and that may hold a command.
    return _opaque(call) if call.is_known else _unclear("it compares what is not known before")


def _awk(call: _Call) -> Judgement:
    texts = call.texts
    code = next((text for text in texts if not text.startswith("-")), "").replace("||", "")
    if not call.is_known or _DANGEROUS_AWK.search(code) or any(text.startswith("--") for text in texts):
        return _unclear("its program may start commands or write files")
    return _opaque(call)


def _sed(call: _Call) -> Judgement:
    scripts = [text for text in call.texts if not text.startswith("-")][:1] + [
        text
        for option, text in zip(call.texts, call.texts[1:], strict=False)
        if option in ("-e", "--expression")
    ]
    if not call.is_known or any(map(_DANGEROUS_SED.search, scripts)):
        return _unclear("its script may start commands or write files")
    return _opaque(call)


def _systemctl(call: _Call) -> Judgement:
    if any(
        re.match(r"(poweroff|reboot|halt|kexec|suspend|hibernate|soft-reboot)", text) for text in call.texts
    ):
        return _never(_STOPS)
    return _LISTED


def _init(call: _Call) -> Judgement:
    return _never(_STOPS) if call.texts[:1] in (["0"], ["6"], ["1"]) else _opaque(call)


_RULES: Mapping[str, Callable[[_Call], Judgement]] = {
    "rm": _rm,
    **dict.fromkeys(("chmod", "chown", "chgrp", "setfacl"), _chmod),
    **dict.fromkeys(_WRITERS, _copy),
    "find": _find,
    "git": _git,
    "kill": _kill,
    "eval": _eval,
    **dict.fromkeys((".", "source"), _source),
    **dict.fromkeys(("export", "declare", "typeset", "readonly", "local"), _declare),
    "printf": _printf,
    **dict.fromkeys(("test", "[", "[["), _test),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _awk),
    **dict.fromkeys(("sed", "gsed"), _sed),
    "systemctl": _systemctl,
    "init": _init,
}


def _shell(call: _Call) -> Judgement:
    """Judge a shell: the command line that it is given, or a script."""
    words = list(call.arguments)
    takes_code = False
    while words and words[0].text[:1] in ("-", "+") and words[0].text not in ("-", "--"):
        option = words.pop(0)
        if not option.known or option.text.startswith(("--rc", "--init")):
            return _unclear("what the shell runs is not known before")
        if not option.text.startswith("--"):
            takes_code |= "c" in option.text
            if "s" in option.text or "i" in option.text:
                return _unclear("the shell reads its commands from elsewhere")
            if option.text[-1] in "oO" and words:
                words.pop(0)
    if words and words[0].text == "--":
        words.pop(0)
    if not words or not words[0].known or words[0].text == "-" or words[0].text.startswith("/dev/"):
        inner = _unclear("the shell reads its commands from elsewhere")
        return inner | (_only_never(_line(words[0].text, (), call.depth + 1)) if words else _SAFE)
    return _line(words[0].text, (), call.depth + 1) | _SAFE if takes_code else _LISTED


def _python(call: _Call) -> Judgement:
    for at, word in enumerate(call.arguments):
        if not word.known:
            return _unclear("what Python runs is not known before")
        if match := re.match(r"-[a-zA-Z]*c(.*)", word.text, re.DOTALL):
            code = match[1] or "".join(call.texts[at + 1 : at + 2])
            danger = not call.is_known or _DANGEROUS_PYTHON.search(code)
            return _unclear("its code may do anything") if danger else _SAFE
        if re.match(r"-[a-zA-Z]*m", word.text):
            module = re.sub(r"^-[a-zA-Z]*m", "", word.text) or "".join(call.texts[at + 1 : at + 2])
            if module in ("pip", "ensurepip", "pipx"):
                return replace(_opaque(call), network=True)
            return _opaque(call)
        if word.text.startswith("/dev/") or word.text == "-":
            break
        if not word.text.startswith("-"):
            return _opaque(call)
    return (
        _SAFE if call.texts in (["-V"], ["--version"]) else _unclear("Python reads its code from elsewhere")
    )


def _interpreter(call: _Call) -> Judgement:
    if call.texts in (["-v"], ["-V"], ["--version"]):
        return _SAFE
    file = bool(call.arguments) and call.arguments[0].known and not call.texts[0].startswith("-")
    return _opaque(call) if file else _unclear("its code may do anything")


def _wrapper(call: _Call) -> Judgement:
    """Judge what a program starts."""
    name, kind = call.name, _WRAPPERS[call.name]
    words, options = _unwrapped(call.arguments, kind)
    judgement = _LISTED
    if name == "command" and any(re.fullmatch(r"-\w*[vV]\w*", one.text) for one in options):
        return _SAFE
    if name == "env":
        while words and _ASSIGNED.match(words[0].text):
            judgement |= _assignment(words[0].text)
            words = words[1:]
        for at, option in enumerate(options):
            if match := re.match(r"-[a-zA-Z0]*S(.*)|--split-string(.*)", option.text, re.DOTALL):
                text = " ".join(
                    [(match[1] or match[2] or "").lstrip("="), *(w.text for w in options[at + 1 :])]
                )
                text = " ".join([text, *(word.text for word in words)])
                return _only_never(_line(text, (), call.depth + 1)) | _unclear("env takes a command apart")
    if name == "flock" and any(one.text in ("-c", "--command") for one in (*options, *words)):
        return _eval(replace(call, words=words)) if words else _unclear("it starts something")
    if any(not option.known for option in options):
        judgement |= _unclear("which program it starts is not known before it runs")
    if words:
        judgement |= _called(call.inside(words))
        if name == "xargs" and not (words[0].known and posixpath.basename(words[0].text) in _INERT):
            judgement |= _unclear("its arguments are not known before")
    if options:
        # Should an option have been misread, the program would be one of the later words.
        judgement |= _opaque(replace(call, words=[*call.words[:1], *options, *words[1:]]))
    return judgement


def _unwrapped(words: Sequence[Word], kind: _Wrapper) -> tuple[Sequence[Word], Sequence[Word]]:
    """Return the words from the inner program on, and the options before it."""
    at = 0
    while at < len(words) and words[at].text.startswith("-") and words[at].text != "-":
        text = words[at].text
        at += 1
        if text == "--":
            break
        if (text in kind.longs) or (len(text) > 1 and text[1] != "-" and text[-1] in kind.valued):
            at += 1
    return words[min(len(words), at + kind.before) :], words[:at]


def _opaque(call: _Call) -> Judgement:
    """Judge a program that is not known better by what its arguments say."""
    starts = call.name not in _TOOLS and not runs_files(call.name)
    for at, word in enumerate(call.arguments, 1):
        if starts and (word.inner or (word.expands and "$" in word.text)):
            return _unclear("it may start what is not known before")
        text, name = word.text, posixpath.basename(word.text).lower()
        if name in _NEVER or text in ("rm", "dd", "eval"):
            return _unclear(f"“{text}” is among its words")
        if _is_device(_normal(text)):
            return _unclear("it names a device")
        if (name in _RISKY or _is_shell(name)) and _called(
            call.inside(call.words[at:])
        ).verdict > Verdict.SAFE:
            return _unclear("its words look like commands")
        if _DANGEROUS_TEXT.search(text):
            return _unclear("its words look like commands")
        for part in {text, text.partition("=")[2]}:
            if re.search(r"[\s'\"\\$]", part) and _line(part, (), call.depth + 1).verdict is Verdict.NEVER:
                return _unclear("its words look like commands")
    return _LISTED


def _needs_network(name: str, texts: Sequence[str]) -> bool:
    if name in _NETWORK:
        return True
    verbs = _FETCHES.get(re.sub(r"[\d.]+$", "", name), frozenset())
    return any(text in verbs for text in texts if not text.startswith("-")) if verbs else False


def _is_shell(name: str) -> bool:
    return name.lower() in _SHELLS


def _is_python(name: str) -> bool:
    return re.fullmatch(r"(python|pypy|ipython)[\d.]*w?", name.lower()) is not None


def _normal(path: str) -> str:
    return re.sub(r"^/+", "/", posixpath.normpath(path)) if path else ""


def _is_device(path: str) -> bool:
    return (path + "/").startswith("/dev/") and not _HARMLESS_DEVICES.fullmatch(path)


def _is_root(path: str) -> bool:
    """Return whether a path is the root, one of its folders, or all that is in them."""
    path = re.sub(r"(/(\*|\.\*|\.\[\S*))+$", "", path) or "/"
    return path.startswith("/") and _normal(path).count("/") == 1 and _normal(path) != "/tmp"  # noqa: S108 - compared only


def _only_never(judgement: Judgement) -> Judgement:
    return judgement if judgement.verdict is Verdict.NEVER else _SAFE


def _never(reason: str) -> Judgement:
    return Judgement(Verdict.NEVER, reason)


def _unclear(reason: str) -> Judgement:
    return Judgement(Verdict.UNCLEAR, reason)


def calls(command: str, depth: int = 0) -> Iterator[Sequence[Word]]:
    """Yield the words of every program that a line starts, those in wrappers and substitutions too."""
    if depth > MAX_DEPTH:
        return
    for segment in parse(command).segments:
        for word in segment.parts:
            for inner in word.inner:
                yield from calls(inner, depth + 1)
        words: Sequence[Word] = segment.words
        while words:
            yield words
            name = posixpath.basename(words[0].text).lower()
            if code := _code_of(words) if _is_shell(name) else "":
                yield from calls(code, depth + 1)
            words = _unwrapped(words[1:], _WRAPPERS[name])[0] if name in _WRAPPERS else ()
            while words and _ASSIGNED.match(words[0].text):
                words = words[1:]


def runs_files(name: str) -> bool:
    """Return whether a program runs a file that it is given, so that the file decides what happens."""
    name = posixpath.basename(name).lower()
    return _is_shell(name) or _is_python(name) or name in _INTERPRETERS or name in (".", "source", "make")


def _code_of(words: Sequence[Word]) -> str:
    """Return the command line that a shell is given, "" if it is given a file."""
    options = list(itertools.takewhile(lambda word: word.text[:1] in ("-", "+"), words[1:]))
    rest = words[1 + len(options) :]
    takes_code = any(re.match(r"-\w*c", option.text) for option in options)
    return rest[0].text if rest and takes_code else ""
