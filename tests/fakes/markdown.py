"""Markdown as language models write it, the strange with the plain."""

from __future__ import annotations

import random
from typing import Final

INPUTS: Final = {
    "nested_list": "- a\n  - b\n    - c **x**\n      1. one\n      2. two\n- d",
    "ordered": "3. three\n4. four\n   - sub\n\n10. ten",
    "table": "| Name | Qty |\n|:-----|----:|\n| a_b | 1 |\n| *c* | `2|3` |",
    "fence_lang": 'Look:\n```python\ndef f(x):\n    return x**2 < 3 and "a_b"  # `tick`\n```\nend',
    "fence_unclosed": "Start\n```js\nlet a = `x` * 2;\nif (a < b && c) {}",
    "fence_nested": "````md\n```py\nx\n```\n````\nafter *it*",
    "snake": "call my_func_name and __init__ and a*b*c and 2 * 3 * 4",
    "link_paren": "See [wiki](https://en.wikipedia.org/wiki/Foo_(bar)) and <https://a.b/c_d?x=1&y=2> "
    'and [x](http://e.com/a_b "ti\\"t")',
    "emoji": "👍 **bold 👨‍👩‍👧‍👦 text** _it 🇩🇪_ :smile: done",
    "cjk_bold": "这是**重点。**然后继续，**加粗**文字，*斜体*测试",
    "html": "<b>x</b> <script>alert(1)</script> <br/> a<b && c>d <details><summary>S</summary>body</details>",
    "headings": "# H1 *it*\n## H2 `c`\nSetext\n===\ntext\n### H3",
    "quote": "> q1 **b**\n> > nested\n> - item\n>\n> end\n\nafter",
    "math": "Cost $5 and $10. Inline $x^2_i$ and \\(a_b\\)\n$$\n\\sum_{i=0}^n i\n$$",
    "mentions": "Hi @john_doe and <@U123> <!channel> <#C1|gen> @everyone #tag /cmd",
    "amp": "AT&T < 5 > 3 &amp; &lt;tag&gt; \"q\" 'a'",
    "emph_mix": "***bi*** **b _i_ b** ~~s **sb**~~ *a **b** c*",
    "emph_overlap": "**a _b** c_ ** not bold ** *x",
    "code_inline": "`a*b` ``x ` y`` `<tag>` `\\` and `back\\\\`",
    "specials": "1.5 + 2 = 3.5! (ok) [no] {x} #1 - a | b ~ c > d . end\\*esc\\*",
    "image": "![alt *x*](https://e.com/i.png) and [![b](https://e.com/b.svg)](https://e.com)",
    "tasks": "- [ ] todo_1\n- [x] done **y**\n* star\n+ plus",
    "hr_br": "para one  \nline two\n\n---\n\n***\nend",
    "footnote_auto": "Text[^1] www.foo_bar.com mail a_b@c.de\n\n[^1]: note _x_",
    "rtl_zw": "مرحبا **عالم** x\u200b_y_\u200b z\u0301 \x00nul \u2028sep",
    "spoiler": "||secret|| and __under__ and ==mark== H~2~O x^2^",
    "deep_quote_code": "> ```sh\n> rm -rf *\n> ```\n\n1. item\n\n   ```c\n   int a_b;\n   ```\n2. next",
    "empty_bold": "**** and ** ** and []() and [t]( ) and ``",
    "pre_trailing_bs": "`x\\` and **b\\** \\\\ end\\",
    "bad_url": "[js](javascript:alert(1)) [rel](/path) [sp](http://a b) [tg](tg://user?id=1) [m](mailto:a@b.c)",
}
"""Thirty inputs on which converters have failed (libraries 3)."""


def mixes(number: int, seed: int) -> list[str]:
    """Return so many texts of three to forty inputs each."""
    chance = random.Random(seed)
    inputs = list(INPUTS.values())
    return ["\n\n".join(chance.choices(inputs, k=chance.randint(3, 40))) for _ in range(number)]
