"""The readable text of pages, with nothing but Python and with trafilatura, and the program that does it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tools import extract as program
from gateway.tools.extract import extract

URL = "https://pub.test/news/today"


def markdown(html: str, *, guess: bool = False) -> str:
    return extract(html, URL, "markdown", guess=guess)[1]


def text(html: str) -> str:
    return extract(html, URL, "text", guess=False)[1]


PIECES = [
    ("headings", "<h1>One</h1><h3>Three <em>words</em></h3><h2> </h2>", "# One\n\n### Three *words*"),
    ("paragraphs", "<p>One\n  and\tmore.<p>Two.", "One and more.\n\nTwo."),
    ("lines", "<p>One<br>two<br/> three</p>", "One\ntwo\nthree"),
    ("emphasis", "<p>a <b>bold </b>word, <i>one</i> more</p>", "a **bold** word, *one* more"),
    ("link", '<p>See <a href="/a?b=1#c">this\npage</a>.</p>', "See [this page](https://pub.test/a?b=1#c)."),
    ("relative-link", '<a href="../x">x</a>', "[x](https://pub.test/x)"),
    ("link-with-brackets", '<a href="/a_(b) c">x</a>', "[x](https://pub.test/a_%28b%29%20c)"),
    ("base", '<base href="https://other.test/d/"><a href="x">x</a>', "[x](https://other.test/d/x)"),
    ("link-nowhere", '<a href="#top">up</a> <a href="javascript:x()">run</a> <a name="x">y</a>', "up run y"),
    ("link-broken", '<a href="http://[x">x</a>', "x"),
    ("link-endless", f'<a href="/{"a" * 600}">x</a>', "x"),
    ("image", '<p>A <img src="x.png" alt="a lobster"> <img src="y.png"></p>', "A [image: a lobster]"),
    ("list", "<ul><li>one<li>two<ul><li>inner</ul><li>three</ul>", "- one\n- two\n  - inner\n- three"),
    ("numbers", '<ol start="3"><li>c</li><li></li><li><p>d</p><p>e</p></li></ol>', "3. c\n4. d\n   e"),
    ("code", "<p>Run <code>ls</code>:</p><pre><code>a\n  b\n</code></pre>", "Run `ls`:\n\n```\na\n  b\n```"),
    ("code-with-fence", "<pre>```\nx\n```</pre>", "````\n```\nx\n```\n````"),
    ("quote", "<blockquote><p>One</p><p>two</p></blockquote>", "> One\n>\n> two"),
    (
        "table",
        "<table><thead><tr><th>A<th>B</thead><tr><td>1<td>2|3<tr><td>4</table>",
        "| A | B |\n| --- | --- |\n| 1 | 2\\|3 |\n| 4 |  |",
    ),
    ("layout-table", "<table><tr><td><h2>T</h2><p>a</p></td></tr></table>", "## T\n\na"),
    ("table-of-pages", f"<table><tr><td>{'x' * 1001}<td>menu</table>", f"{'x' * 1001}\n\nmenu"),
    ("block-in-link", '<a href="/x"><div>Card</div></a>', "Card"),
    ("terms", "<dl><dt>T<dd>D</dl>", "T\n\nD"),
    ("entities", "<p>a &amp; b &lt;c&gt; &#20013; &nbsp;d</p>", "a & b <c> 中 \xa0d"),
    ("chinese", "<p>今天天气很好。<p>明天下雨。", "今天天气很好。\n\n明天下雨。"),
    ("menus", "<nav>Home</nav><p>Text</p><footer>Imprint</footer><aside>Ad</aside>", "Text"),
    ("scripts", "<p>a</p><script>if (1<2) '</p>'</script><style>p{}</style><noscript>no</noscript>", "a"),
    ("comments", "<p>a<!-- b --> c<!-- <p>d</p> --></p>", "a c"),
    ("open-comment", "<p>a</p><!-- b <p>c</p>", "a"),
    ("nothing", "", ""),
    ("no-html", "just words", "just words"),
    ("unopened", "</p></div>a</b>", "a"),
]


@pytest.mark.parametrize(("html", "expected"), [one[1:] for one in PIECES], ids=[one[0] for one in PIECES])
def test_html_becomes_markdown(html: str, expected: str) -> None:
    assert markdown(html) == expected


def test_text_has_no_marks() -> None:
    html = '<h1>One</h1><p>a <b>bold</b> <a href="/x">link</a><pre>x</pre><blockquote>q</blockquote>'
    assert text(html) == "One\n\na bold link\n\nx\n\nq"


HIDDEN = [
    '<p style="display: none">OBEY</p>',
    "<p hidden>OBEY</p>",
    '<span style="visibility:hidden">OBEY</span>',
    '<div style="color:red;font-size:0px">OBEY<p>OBEY</p></div>',
    '<div style="opacity: 0">OBEY</div>',
    '<div aria-hidden="true">OBEY</div>',
    '<span class="x sr-only">OBEY</span>',
    "<template><p>OBEY</p></template>",
    "<textarea>OBEY</textarea>",
    "<svg><text>OBEY</text></svg>",
]


@pytest.mark.parametrize("guess", [False, True], ids=["plain", "guessed"])
@pytest.mark.parametrize("hidden", HIDDEN)
def test_what_nobody_sees_the_model_does_not_read(hidden: str, guess: bool) -> None:
    story = "<p>" + "A long story of the sea and its animals, told by somebody who was there. " * 5 + "</p>"
    shown = markdown(f"<html><body>{story}{hidden}{story}</body></html>", guess=guess)
    assert "animals" in shown
    assert "OBEY" not in shown


def test_the_opacity_of_something_seen_is_no_matter() -> None:
    assert markdown('<p style="opacity:0.5">seen</p>') == "seen"


def test_the_part_that_the_page_calls_its_main_one_is_taken() -> None:
    story = "<p>The story, which is long enough.</p>"
    assert (
        markdown(f"<div>Menu</div><main>{story}</main><div>More</div>") == "The story, which is long enough."
    )
    assert markdown(f'<div>Menu</div><div role="main">{story}</div>') == "The story, which is long enough."


def test_one_of_many_articles_is_not_the_whole_page() -> None:
    cards = "".join(f"<article>Card {n}</article>" for n in range(5))
    assert markdown(cards).count("Card") == 5


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<title> A &amp;\n B </title><h1>C</h1>", "A & B"),
        ('<meta property="og:title" content="Named">', "Named"),
        ("<svg><title>icon</title></svg><p>x", "icon"),
        ("<p>x", ""),
        (f"<title>{'x' * 400}</title>", "x" * 300),
    ],
)
def test_a_page_has_the_title_that_it_gives_itself(html: str, expected: str) -> None:
    assert extract(html, URL, "markdown", guess=False)[0] == expected


SOUP = (
    "<html><body><div class='menu'>"
    + "".join(f'<a href="/{n}">Menu entry {n}</a> ' for n in range(20))
    + "</div>"
    "<div class='content'><h1>Crayfish</h1>"
    + "<p>Crayfish are freshwater crustaceans that resemble small lobsters, and they live in brooks and streams.</p>"
    * 8
    + "</div></body></html>"
)


def test_where_a_page_names_no_main_part_it_is_found_between_the_menus() -> None:
    pytest.importorskip("trafilatura", reason="the extra web is not installed")
    shown = markdown(SOUP, guess=True)
    assert "freshwater crustaceans" in shown
    assert "Menu entry" not in shown
    assert "Menu entry" in markdown(SOUP)


@given(st.text(alphabet="<>/ abdiv-!p=\"'&#;tr\n", max_size=200))
def test_no_page_is_too_broken(html: str) -> None:
    extract(html, URL, "markdown", guess=False)


@given(
    st.lists(
        st.sampled_from(
            ["<div>", "<p>", "<li>", "<table>", "<td>", "</div>", "<a href=x>", "</a>", "<ul>", "word "]
        )
    )
)
def test_no_word_gets_lost_in_any_nesting(tags: list[str]) -> None:
    html = "".join(tags)
    assert markdown(html).count("word") == html.count("word")


def run(html: str, seconds: int = 5) -> subprocess.CompletedProcess[bytes]:
    asked = json.dumps({"url": URL, "mode": "markdown"})
    return subprocess.run(
        [sys.executable, "-P", program.__file__, str(seconds)],
        input=f"{asked}\n{html}".encode(),
        capture_output=True,
        env={},
        check=False,
    )


def test_the_program_reads_one_page_from_stdin() -> None:
    done = run("<title>T</title><main><p>grüße 中文</p></main>")
    assert json.loads(done.stdout) == ["T", "grüße 中文", False]


def test_the_program_gives_no_more_than_the_longest_text() -> None:
    title, shown, cut = json.loads(run(f"<main>{'word ' * 100_000}</main>").stdout)
    assert (title, len(shown), cut) == ("", program.LONGEST, True)


@pytest.mark.parametrize(
    "html",
    [
        "<!--" * 150_000,
        "<div>" * 140_000,
        "<a " * 200_000,
        '<a href="' * 70_000,
        "<table>" + "<td>" * 150_000,
    ],
    ids=["comments", "deep", "attributes", "quotes", "cells"],
)
def test_a_page_that_is_made_to_take_for_ever_ends_with_its_process(html: str) -> None:
    assert run(html, seconds=1).returncode in (0, -signal.SIGKILL)
