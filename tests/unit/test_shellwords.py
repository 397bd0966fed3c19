"""What a command line says: read as bash reads it, and never judged better than it is."""

from __future__ import annotations

import base64
import random
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.clock import SystemClock
from gateway.config import ExecSettings
from gateway.errors import ToolDenied
from gateway.tools.base import ToolContext
from gateway.tools.denylist import Judgement, Verdict, calls, judge
from gateway.tools.exec import exec_tools
from gateway.tools.processes import Launch, Process, Processes
from gateway.tools.sandbox import Sandbox, Tier
from gateway.tools.shellwords import parse, quoted
from gateway.types import Address, Chat, Sender

EVERYDAY = (
    "echo",
    "ls",
    "cat",
    "env",
    "printf",
    "true",
    "cd",
    "nice",
    "timeout",
    "xargs",
    "find",
    "git",
    "head",
)


def words(line: str) -> list[list[str]]:
    return [[word.text for word in segment.words] for segment in parse(line).segments]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ls -la", [["ls", "-la"]]),
        ("r''m -r\"f\" /", [["rm", "-rf", "/"]]),
        ("s\\udo 'a b' \"c d\"", [["sudo", "a b", "c d"]]),
        ("a|b||c&&d;e&f", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]),
        ("ls\nrm x", [["ls"], ["rm", "x"]]),
        ("ls # rm x", [["ls"]]),
        ("ls a#b", [["ls", "a#b"]]),
        ("echo a\\\nb", [["echo", "ab"]]),
        ("( cd x; ls ) | wc", [["cd", "x"], ["ls"], ["wc"]]),
        ("if true; then ls; else id; fi", [["true"], ["ls"], ["id"]]),
        ("for i in a b; do echo x; done", [["echo", "x"]]),
        ("A=1 B=2 make", [["make"]]),
        ("ls 2>&1 >out <in", [["ls"]]),
        ("echo '$x' \"\\$x\"", [["echo", "$x", "$x"]]),
        ("echo \"a'b\" 'a\"b'", [["echo", "a'b", 'a"b']]),
    ],
)
def test_words_are_what_a_shell_makes_of_them(line: str, expected: list[list[str]]) -> None:
    assert words(line) == expected
    assert parse(line).unclear == ""


@pytest.mark.parametrize(
    "line",
    [
        "echo 'a",
        'echo "a',
        "echo `a",
        "echo $(a",
        "echo ${a",
        "( a",
        "a )",
        "cat <<E\nx\nE",
        "f() { a; }",
        "case x in x) a;; esac",
        "function f { a; }",
        "echo ${a@P}",
        "echo ${!a}",
        "echo ${a[$(b)]}",
        "echo $((a))",
        "echo $[1+1]",
        "((a))",
        "a >",
        "a\x1bb",
        "a\rb",
        "echo $(a # )\n)",
        "coproc a",
    ],
)
def test_what_is_not_read_exactly_is_said_to_be_unclear(line: str) -> None:
    assert parse(line).unclear
    assert judge(line, EVERYDAY).verdict is Verdict.UNCLEAR


@pytest.mark.parametrize(
    ("line", "inner"),
    [
        ("echo $(id)", ["id"]),
        ("echo `id`", ["id"]),
        ('echo "x $(id -u) y"', ["id -u"]),
        ("diff <(ls a) >(wc)", ["ls a", "wc"]),
        ("echo $(echo $(id))", ["echo $(id)"]),
        ('echo "$(echo ")")"', ['echo ")"']),
        ("a=$(id) ls", ["id"]),
        ("ls > $(id)", ["id"]),
        ("for i in $(id); do ls; done", ["id"]),
    ],
)
def test_commands_within_commands_are_found(line: str, inner: list[str]) -> None:
    found = [one for segment in parse(line).segments for word in segment.parts for one in word.inner]
    assert found == inner
    assert "id" in {each[0].text for each in calls(line)} or "wc" in line or "echo" in line


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1), min_size=1))
def test_quoted_words_come_back_as_they_were(texts: list[str]) -> None:
    [segment] = parse(shlex.join(texts)).segments if _ordinary(texts) else parse("x").segments
    if _ordinary(texts):
        assert [word.text for word in segment.words] == texts


def _ordinary(texts: list[str]) -> bool:
    """Return whether the first word is a command: no assignment, and nothing that bash gives a meaning."""
    return (
        texts[0].isalpha()
        and texts[0].isascii()
        and texts[0] not in ("if", "then", "do", "for", "in", "time")
    )


@given(st.text())
def test_no_text_breaks_the_reader(text: str) -> None:
    assert isinstance(judge(text, ("ls", "echo *")), Judgement)


@given(st.lists(st.sampled_from(list("'\"\\$`(){}[]<>|&;#\n \t=*~!ab/-")), max_size=40).map("".join))
def test_no_punctuation_breaks_the_reader(text: str) -> None:
    assert isinstance(judge(text), Judgement)


@pytest.mark.parametrize(
    "line", ["a 'b c' | d && e ; f", "printf '%s|' \"it's\" a\\ b", "printf '<%s>' '$HOME' '*' '`id`' ';'"]
)
def test_a_listed_line_is_run_word_by_word(line: str) -> None:
    again = parse(quoted(parse(line)))
    assert [[w.text for w in s.words] for s in again.segments] == words(line)
    if line.startswith("printf"):
        plain = subprocess.run(["/bin/sh", "-c", line], capture_output=True, check=True).stdout
        ours = subprocess.run(["/bin/sh", "-c", quoted(parse(line))], capture_output=True, check=True).stdout
        assert ours == plain


# Judgements.


@pytest.mark.parametrize(
    "line",
    [
        *(
            "rm -rf /",
            "rm -fr /",
            "rm -r -f /*",
            "rm --recursive --force -- //",
            "rm -rf /etc",
            "rm -rf /usr/",
        ),
        *("rm --no-preserve-root -rf x", "RM -rf /", "/bin/rm -rf /", "\\rm -rf /", "rm -Rf /."),
        *("sudo ls", "'sudo' ls", "SUDO ls", "/usr/bin/sudo ls", "doas ls", "su -c ls", "pkexec ls"),
        *("shutdown now", "reboot", "halt", "poweroff", "systemctl reboot", "init 0", "telinit 6"),
        *("echo x > /dev/sda", "echo x >> /dev/sda", "echo x >| /dev//sda", "echo x &> /dev/../dev/sda"),
        *("exec 3<> /dev/sda", "tee /dev/sda", "dd if=x of=/dev/sda", "cp x /dev/sda", "mkfs.ext4 /dev/sda"),
        *(":(){ :|:& };:", "bomb(){ bomb|bomb& };bomb", "chmod -R 777 /", "echo b > /proc/sysrq-trigger"),
        *("bash -c 'sudo ls'", "sh -xc reboot", "bash -o errexit -c reboot", "sh <<< reboot"),
        *("env A=1 sudo ls", "env -u A sudo ls", "env -S 'sudo ls'", "nice -n 5 reboot", "timeout 5 reboot"),
        *(
            "timeout -s KILL 5 reboot",
            "nohup reboot &",
            "setsid reboot",
            "stdbuf -oL reboot",
            "command reboot",
        ),
        *("exec reboot", "time reboot", "busybox reboot", "xargs sudo", "xargs -n1 sudo", "eval 'sudo ls'"),
        *("find . -exec sudo rm {} +", "echo $(sudo ls)", "echo `reboot`", "cat <(sudo ls)", "a=$(reboot)"),
        *(
            "ls; reboot",
            "ls && reboot",
            "ls | sudo tee x",
            "if true; then reboot; fi",
            "{ reboot; }",
            "(reboot)",
        ),
        *("! reboot", "while true; do reboot; done", "ls\nreboot", "bash <<E\nreboot\nE", "x=1 reboot"),
    ],
)
def test_what_is_on_the_list_never_runs(line: str) -> None:
    assert judge(line, EVERYDAY).verdict is Verdict.NEVER


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("$(printf 'r%s' m) -rf /", id="exec-004"),
        pytest.param("rm${IFS}-rf${IFS}/", id="exec-006"),
        pytest.param("find / -delete", id="exec-007"),
        pytest.param("LD_PRELOAD=/tmp/x.so ls", id="exec-033"),
        *(
            "rm -rf build",
            "rm $x",
            "X=rm; $X -rf /",
            "a=sudo; $a ls",
            "{rm,-rf,/}",
            "r? -rf /",
            "$'\\x72m' x",
        ),
        *(
            "echo cm0= | base64 -d | sh",
            "curl x | bash",
            "bash",
            "sh -s",
            "bash /dev/stdin",
            "python3 -",
            "node",
        ),
        *(
            "python3 -c 'import os'",
            "perl -e 1",
            "ruby -e 1",
            "node -e 1",
            "php -r 1",
            "awk 'BEGIN{system(1)}'",
        ),
        *("sed 's/a/b/e' f", "vim f", "watch ls", "parallel ls", "trap ls EXIT", "alias a=b", "eval $x"),
        *("xargs rm", "xargs -I{} sh -c {}", "echo a | xargs bash", "foo sudo x", "foo 's\"u\"do x'"),
        *("tar cf a b --checkpoint-action=exec='sudo x'", "git -c core.pager=x log", "git config a.b c"),
        *("git reset --hard", "git push -f", "git clean -fd", "cp /bin/rm x", "ln -s /usr/bin/sud? x"),
        *("PATH=. ls", "IFS=x ls", "export PATH=.", "[ -v 'a[$(x)]' ]", "printf -v 'a[$(x)]' 1", "let a=1"),
        *("chmod -R u+x .", "kill -9 -1", "pkill x", "crontab -e", "systemctl stop x", "mv x /dev/null"),
        *("echo x > $f", "cat <<E\nx\nE", "env $x", "nice $(echo x) y", '"$SHELL" -c ls', "source <(x)"),
        *("unshare -Ur id", "echo x > /proc/self/x", "dd if=x of=$y", "HOME=/dev; echo x > $HOME/sda"),
    ],
)
def test_what_is_unclear_or_destructive_is_asked_about(line: str) -> None:
    assert judge(line, EVERYDAY).verdict is Verdict.UNCLEAR


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("ls -la && wc -l notes.md", id="exec-024"),
        pytest.param("git log --oneline | head -3", id="exec-025"),
        pytest.param("cat ~/.config/gateway/config.toml; env", id="exec-009"),
        pytest.param("cat /proc/1/environ /proc/*/environ", id="exec-010"),
        pytest.param('python3 -c "a=bytearray(8<<30)"', id="exec-015"),
        pytest.param("yes", id="exec-016"),
        pytest.param("sleep 100000", id="exec-018"),
        pytest.param("(setsid nohup sleep 9999 >/dev/null 2>&1 &) ; echo ok", id="exec-019"),
        pytest.param("echo x > /etc/cron.d/x; echo x >> ~/.bashrc", id="exec-034"),
        *("echo 'sudo is bad'", "git commit -m 'remove sudo, reboot'", "grep -rn sudo .", "which sudo"),
        *("command -v git", "python3 script.py --x", "node x.js", "make test", "npm test", "bash job.sh"),
        *(
            "cat a > b 2>&1",
            "ls *.md",
            'for f in *.txt; do wc -l "$f"; done',
            "mkdir -p a && cd a && touch b",
        ),
        *("rm notes.tmp", "sed -i 's/a/b/' x", "awk '{print $1}' x", "find . -name '*.py' -exec grep x {} +"),
        *(
            "find . -type f | xargs wc -l",
            "cp a b",
            "mv a b",
            "tar czf x.tgz d",
            "x=1 make",
            "echo $HOME $(date)",
        ),
        *("if [ -f x ]; then cat x; fi", "sort f | uniq -c | sort -rn", "git add -A", "pytest -q -x tests"),
        *("git rm --cached x", "printf '%s\\n' \"it's done\"", "jq '.a|.b' f", "python3 -c 'print(6*7)'"),
    ],
)
def test_ordinary_work_is_not_asked_about(line: str) -> None:
    assert judge(line).verdict is Verdict.SAFE


@pytest.mark.parametrize(
    ("line", "needs"),
    [
        ("curl x", True),
        ("git push", True),
        ("git status", False),
        ("pip install x", True),
        ("ls", False),
        ("timeout 5 curl x", True),
        ("echo curl", False),
        ("bash -c 'wget x'", True),
        ("npm test", False),
        ("echo x > /dev/tcp/1.2.3.4/80", True),
        ("python3 -m pip install x", True),
    ],
)
def test_what_needs_the_network_is_told(line: str, *, needs: bool) -> None:
    assert judge(line).network is needs


@pytest.mark.parametrize(
    "line",
    ["echo ok && touch x", "ls; rm x", "echo $(id)", "echo `id`", "ls\nrm x", "ls | sh", "echo hi > /tmp/x"],
    ids=[f"security-exec-01-{number}" for number in range(7)],
)
def test_every_part_of_a_line_must_be_listed(line: str) -> None:
    assert judge(line, ("echo", "ls")).verdict is not Verdict.LISTED


@pytest.mark.parametrize(
    "line",
    ["env bash -c whoami", "nice bash -c id", "xargs bash", "timeout 5 bash -c id"],
    ids=[f"security-exec-02-{number}" for number in range(4)],
)
def test_a_listed_wrapper_lists_nothing_else(line: str) -> None:
    assert judge(line, ("env", "nice", "xargs", "timeout")).verdict is not Verdict.LISTED


@pytest.mark.parametrize(
    ("line", "allow", "listed"),
    [
        ("ls", ("ls",), True),
        ("ls -la /x", ("ls",), True),
        ("ls; ls -la", ("ls",), True),
        ("ls | wc -l", ("ls", "wc"), True),
        ("ls | wc -l", ("ls",), False),
        ("ls; id", ("ls",), False),
        ("head $HOME/.ssh/*", ("head",), True),
        ("timeout 5 ls", ("ls",), True),
        ("timeout 5 ls", ("timeout",), False),
        ("env A=1 ls", ("ls",), False),
        ("git log --oneline", ("git log *",), True),
        ("git log", ("git log *",), True),
        ("git push", ("git log *",), False),
        ("git status", ("git status",), True),
        ("git status -s", ("git status",), False),
        ("npm run build", ("npm run *",), True),
        ("./ls", ("ls",), False),
        ("/opt/tool/run x", ("/opt/tool/*",), True),
        ("ls > x", ("ls",), False),
        ("A=1 ls", ("ls",), False),
        ("ls &", ("ls",), False),
        ("! ls", ("ls",), False),
        ("rm x", ("rm",), True),
        ("find . -name x", ("find",), True),
        ("find . -exec curl x {} +", ("find",), False),
        ("bash x.sh", ("bash",), False),
        ("bash x.sh", ("bash x.sh",), True),
        ("python3 x.py", ("python3",), True),
        ("python3 -c 'print(1)'", ("python3",), False),
        ("perl -e 1", ("perl *",), False),
        ("rm -rf /", ("rm",), False),
        ("rm -rf build", ("rm -rf build",), False),
        ("sudo ls", ("sudo *", "ls"), False),
    ],
)
def test_what_is_listed(line: str, allow: tuple[str, ...], *, listed: bool) -> None:
    assert (judge(line, allow).verdict is Verdict.LISTED) is listed


# A thousand disguises of what is on the list.

FORBIDDEN = (
    *("rm -rf /", "rm -r -f /*", "rm --recursive --force /", "rm -fr /etc", "sudo id", "sudo -n rm -rf x"),
    *("shutdown -h now", "reboot", "poweroff -f", "halt", "su -c id", "doas id", "mkfs.ext4 /dev/sda"),
    *(
        "dd if=/dev/zero of=/dev/sda",
        "tee /dev/sda",
        "systemctl reboot",
        "chmod -R 777 /",
        "echo x > /dev/sda",
    ),
)
WRAPPERS = (
    *("env ", "env A=1 ", "env -i ", "env -u X ", "nice ", "nice -n 5 ", "timeout 5 ", "timeout -k 1 5 "),
    *("nohup ", "setsid ", "stdbuf -oL ", "ionice -c 3 ", "command ", "exec ", "time ", "busybox ", "xargs "),
    *(
        "xargs -n 1 ",
        "find . -exec ",
        "watch ",
        "strace -f ",
        "flock /tmp/l ",
        "sudo ",
        "chrt 5 ",
        "unknown ",
    ),
    *(
        "unknown -x ",
        "parallel ",
        "A=1 ",
        "builtin ",
        "taskset 1 ",
        "script -c ",
        "ssh host ",
        "caffeinate -t 5 ",
    ),
)


def disguises(seed: int, count: int) -> Iterator[str]:
    """Yield command lines that do what is on the list, under layers of quotes, wrappers and pipes."""
    chance = random.Random(seed)
    for _ in range(count):
        line = disguised_words(chance.choice(FORBIDDEN), chance)
        for _ in range(chance.randint(1, 3)):
            line = chance.choice(LAYERS)(line, chance)
        yield line


def disguised_words(line: str, chance: random.Random) -> str:
    return " ".join(word if word in (">", "|") else disguised(word, chance) for word in line.split())


def disguised(word: str, chance: random.Random) -> str:
    """Return a word that the shell reads the same, written otherwise."""
    if "*" in word:
        return word
    pieces = []
    for sign in word:
        style = chance.randrange(6)
        pieces.append({0: f"\\{sign}", 1: f"'{sign}'", 2: f'"{sign}"', 3: f"''{sign}"}.get(style, sign))
    return "".join(pieces)


def _nested(line: str, chance: random.Random) -> str:
    shell = chance.choice(["sh", "bash", "/bin/sh", "dash", "bash -x", "bash -l"])
    return f"{shell} -c {shlex.quote(line)}"


def _encoded(line: str, chance: random.Random) -> str:
    code = base64.b64encode(line.encode()).decode()
    return f"echo {code} | base64 -d | {chance.choice(['sh', 'bash', 'bash -s', 'sh -', 'env bash', 'xargs -I{} sh -c {}'])}"


def _in_variable(line: str, chance: random.Random) -> str:
    first, _, rest = line.partition(" ")
    return chance.choice(
        [
            f"a={shlex.quote(line)}; eval $a",
            f'a={shlex.quote(line)}; bash -c "$a"',
            f"a={first}; $a {rest}",
            f"a={first}; ${{a}} {rest}",
            f"f() {{ {line}; }}; f",
            f"set -- {first}; $1 {rest}",
        ]
    )


def _in_structure(line: str, chance: random.Random) -> str:
    return chance.choice(
        [
            f"ls; {line}",
            f"true && {line}",
            f"false || {line}",
            f"({line})",
            f"{{ {line}; }}",
            f"! {line}",
            f"if true; then {line}; fi",
            f"for i in 1; do {line}; done",
            f"ls\n{line}",
            f"while {line}; do ls; done",
            f"ls | {line}",
            f"{line} | cat",
            f"{line} &",
            f"{line} # fine",
            f"cat <<E | bash\n{line}\nE",
        ]
    )


def _in_substitution(line: str, chance: random.Random) -> str:
    backticks = line.replace("\\", "\\\\").replace("`", "\\`")
    return chance.choice(
        [
            f"echo $({line})",
            f'echo "$({line})"',
            f"echo `{backticks}`",
            f"cat <({line})",
            f"a=$({line})",
            f"ls > $({line})",
            f"echo ${{x:-$({line})}}",
            f"$(echo {shlex.quote(line)})",
            f"ls $(echo $({line}))",
        ]
    )


def _wrapped(line: str, chance: random.Random) -> str:
    return chance.choice(WRAPPERS) + line


def _spaced(line: str, chance: random.Random) -> str:
    blank = chance.choice(["\t", "  ", " \\\n ", "${IFS}", "$IFS"])
    return line.replace(" ", blank) if "'" not in line and '"' not in line else f"  {line}  "


LAYERS: tuple[Callable[[str, random.Random], str], ...] = (
    *(_nested, _encoded, _in_variable, _in_structure, _in_substitution, _wrapped, _wrapped, _spaced),
)
DISGUISES = list(dict.fromkeys(disguises(6, 1400)))[:1000]


def test_there_are_a_thousand_different_disguises() -> None:
    assert len(DISGUISES) == 1000


def test_no_disguise_is_judged_harmless() -> None:
    harmless = [line for line in DISGUISES if judge(line, EVERYDAY).verdict < Verdict.UNCLEAR]
    assert harmless == []


class _Nowhere(Processes):
    """Starts nothing, and remembers what it should have started."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.started: list[str] = []

    async def start(self, owner: int, launch: Launch) -> Process:
        self.started.append(launch.shown)
        raise ToolDenied(f"not here, for {owner}")


@pytest.mark.parametrize("mode", ["auto", "ask", "allowlist"])
async def test_no_disguise_runs_unasked(tmp_path: Path, mode: str) -> None:
    nowhere = _Nowhere()
    settings = ExecSettings.model_validate({"mode": mode, "allow": list(EVERYDAY)})
    sandbox = Sandbox(Tier.BWRAP, "a sandbox", "/nowhere/bwrap")
    run, _ = exec_tools(settings, nowhere, SystemClock(), environ={}, sandbox=lambda: sandbox)
    owner = Sender("7", "Ann", "owner")
    context = ToolContext(tmp_path.resolve(), Address("fake", "1"), owner, Chat.DIRECT, "c1")
    for line in DISGUISES:
        with pytest.raises(ToolDenied):
            await run({"command": line}, context)
    assert nowhere.started == []
