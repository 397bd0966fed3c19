"""Notes as terms, chunks and rankings: what is found, and where, decided from values."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import date
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.memory import sets
from gateway.errors import ConfigError
from gateway.memory import files, plan
from gateway.memory.chunks import MOST, OVERLAP, chunks
from gateway.memory.files import MAX_NOTE, Stamp
from gateway.memory.rank import SNIPPET, Weights, apart, best_lines, freshness, fuse
from gateway.memory.stem import stem
from gateway.memory.vectors import Matrix, UseEncoder, installed, open_encoder
from gateway.memory.words import MAX_TERMS, begins_others, loose, query, terms
from tests.fakes.notes import ranked, shares

needs_vectors = pytest.mark.skipif(not installed(), reason="the extra `memory` is not installed")


def recall_at_5(number: int) -> float:
    notes, questions = sets()[number]
    found = [len(set(ranked(notes, one.text)[:5]) & set(one.answers)) / len(one.answers) for one in questions]
    return sum(found) / len(found)


class TestStem:
    @pytest.mark.parametrize(
        "words",
        [
            "deploy deploys deployed deploying",
            "vaccinate vaccinated vaccinating vaccination vaccinations",
            "cancel cancels canceled",
            "connect connected connecting connection connections",
            "hop hops hopped hopping",
            "relate related relating relational",
            "duplicate duplicates duplicated",
            "week weeks weekly",
            "party parties",
        ],
    )
    def test_forms_of_a_word_have_one_stem(self, words: str) -> None:
        assert len({stem(word) for word in words.split()}) == 1

    @pytest.mark.parametrize(
        ("word", "stemmed"),
        [
            ("caresses", "caress"),
            ("ponies", "poni"),
            ("agreed", "agre"),
            ("plastered", "plaster"),
            ("bled", "bled"),
            ("sing", "sing"),
            ("conflated", "conflat"),
            ("sized", "size"),
            ("falling", "fall"),
            ("failing", "fail"),
            ("filing", "file"),
            ("sky", "sky"),
            ("conditional", "condit"),
            ("digitizer", "digit"),
            ("operator", "oper"),
            ("triplicate", "triplic"),
            ("hopefulness", "hope"),
            ("adjustable", "adjust"),
            ("adoption", "adopt"),
            ("controlling", "control"),
            ("cease", "ceas"),
            ("by", "by"),
        ],
    )
    def test_the_examples_of_the_paper_come_out_as_there(self, word: str, stemmed: str) -> None:
        assert stem(word) == stemmed


class TestTerms:
    def test_words_lose_case_accents_and_endings(self) -> None:
        assert terms("Running CAFÉS: Grandma's café") == ["run", "cafe", "grandma", "cafe"]

    def test_a_code_is_found_as_a_whole_and_by_its_parts(self) -> None:
        assert terms("error E-07") == ["error", "e", "07", "e07"]

    @pytest.mark.parametrize(
        ("text", "found"),
        [
            ("伪指令", ["伪指", "指令", "令"]),
            ("猫", ["猫"]),
            ("おはよう", ["おは", "はよ", "よう", "う"]),
            ("서울역", ["서울", "울역", "역"]),
            ("用PostgreSQL吧", ["用", "postgresql", "吧"]),
            ("S3备份", ["s3", "备份", "份"]),
        ],
    )
    def test_signs_without_blanks_give_pairs_and_the_last_one(self, text: str, found: list[str]) -> None:
        assert terms(text) == found

    def test_a_run_of_signs_asks_for_its_pairs_alone(self) -> None:
        assert query("报告单") == ["报告", "告单"]

    def test_a_sign_that_stands_alone_asks_for_what_begins_with_it(self) -> None:
        assert [(term, begins_others(term)) for term in query("猫 x1")] == [("猫", True), ("x1", False)]

    def test_in_the_place_of_a_pair_its_signs_are_looked_for_without_those_of_common_words(self) -> None:
        assert loose(["汽车", "车怎", "么修", "car", "x1", "猫", "はよ", "서울"]) == ["汽", "车", "修"]

    def test_words_that_every_text_has_are_left_out_unless_there_are_no_others(self) -> None:
        assert query("What was the plan for it?") == ["plan"]
        assert query("what is it") == ["what", "is", "it"]

    @pytest.mark.parametrize(
        "text",
        ["2026-03-16.md", 'C++ "x', "a AND (", "优先级*", "NEAR/2", "^col: -x", "'; --", "\0\ud800", ""],
    )
    def test_memory_06_search_syntax_becomes_plain_terms(self, text: str) -> None:
        assert all(term and not set(term) & set("\"'*()&|!:<> ") for term in query(text))

    def test_a_query_has_a_limit(self) -> None:
        assert len(query(" ".join(f"word{number}x" for number in range(500)))) == MAX_TERMS

    @given(st.text())
    def test_any_text_gives_terms_that_a_database_can_hold(self, text: str) -> None:
        for term in terms(text):
            term.encode()
            assert term
            assert not any(sign.isspace() or sign in "\0§\"'" for sign in term)

    @given(st.text(min_size=1))
    def test_a_text_is_found_by_itself(self, text: str) -> None:
        asked = query(text)
        had = terms(text)
        assert all(term in had or any(one.startswith(term) for one in had) for term in asked)


@pytest.mark.parametrize(
    ("notes", "asked"),
    [
        pytest.param(["周末带孩子去植物园看郁金香", "周一交水电费"], "植物园看", id="memory-01"),
        pytest.param(["请把报告写短一点并附表格", "keep it in English"], "报告", id="memory-02"),
        pytest.param(["S3备份任务周五夜里上传超时", "超市购物清单"], "S3备份上传超时怎么办", id="memory-04"),
    ],
)
def test_chinese_is_found_inside_of_sentences(notes: Sequence[str], asked: str) -> None:
    assert ranked(dict(zip("ab", notes, strict=True)), asked)[0] == "a"


@pytest.mark.parametrize(
    ("notes", "asked"),
    [(["车辆每六万公里保养", "猫咪打疫苗"], "汽车"), (["回答要简短", "猫咪打疫苗"], "我应该怎么回复你")],
)
def test_words_that_share_a_sign_are_found_where_no_note_has_the_pair(
    notes: Sequence[str], asked: str
) -> None:
    assert ranked(dict(zip("ab", notes, strict=True)), asked) == ["a"]


def test_a_sign_brings_nothing_to_a_pair_that_a_note_has() -> None:
    assert ranked({"a": "火车票", "b": "汽车保养"}, "汽车") == ["b"]


@pytest.mark.parametrize(
    ("number", "least"), [(0, 0.84), (1, 0.78), (2, 0.76)], ids=["set 1", "set 2", "set 3"]
)
def test_words_alone_find_what_they_are_to_find(number: int, least: float) -> None:
    assert recall_at_5(number) >= least


class TestChunks:
    def test_a_short_note_is_one_chunk_with_its_lines(self) -> None:
        [chunk] = chunks("one\ntwo\n")
        assert (chunk.first, chunk.last, chunk.text) == (1, 3, "one\ntwo\n")

    def test_each_heading_begins_a_chunk_that_knows_the_headings_above(self) -> None:
        found = chunks("intro\n# Home\nkey\n## Garden\nhose\n# Work\ndesk")
        assert [(one.first, one.last, one.headings) for one in found] == [
            (1, 1, ""),
            (2, 3, ""),
            (4, 5, "Home"),
            (6, 7, ""),
        ]

    def test_a_heading_in_a_fence_is_text(self) -> None:
        assert len(chunks("a\n```\n# not one\n```\nb")) == 1

    @pytest.mark.parametrize("text", ["", "\n\n", "  \n\t\n"])
    def test_what_is_blank_gives_none(self, text: str) -> None:
        assert chunks(text) == []

    def test_a_long_section_is_cut_into_overlapping_pieces(self) -> None:
        found = chunks("\n".join(f"line {number} has some words in it" for number in range(200)))
        assert len(found) > 3
        for one, following in pairwise(found):
            assert one.first < following.first <= one.last < following.last
            shared = "\n".join(following.text.split("\n")[: one.last - following.first + 1])
            assert len(shared.encode()) <= OVERLAP

    def test_a_long_line_is_cut_and_keeps_its_number(self) -> None:
        found = chunks("first\n" + "很长的一行" * 1000)
        assert {(one.first, one.last) for one in found[1:]} == {(2, 2)}

    @given(st.lists(st.text(st.characters(exclude_characters="\n"), max_size=900), max_size=30))
    def test_every_line_is_in_a_chunk_of_a_bounded_size(self, lines: list[str]) -> None:
        found = chunks("\n".join(lines))
        for number, line in enumerate(lines, 1):
            if line.strip():
                assert any(one.first <= number <= one.last and line[:300] in one.text for one in found)
        assert all(len(one.text.encode("utf-8", "replace")) <= MOST + OVERLAP + 1600 for one in found)


class TestRank:
    def test_a_rare_word_counts_more_than_a_common_one(self) -> None:
        notes = {str(number): "report about the plan" for number in range(9)} | {
            "rare": "report with orchids"
        }
        assert ranked(notes, "report orchids")[0] == "rare"

    def test_of_two_notes_with_a_word_the_shorter_is_better(self) -> None:
        assert ranked({"long": "tea " + "and cake " * 50, "short": "tea"}, "tea") == ["short", "long"]

    def test_places_in_two_rankings_are_joined(self) -> None:
        scores = fuse(dict.fromkeys([1, 2, 3], 1.0), dict.fromkeys([3, 4], 1.0))
        assert sorted(scores, key=lambda each: -scores[each]) == [3, 1, 2, 4]

    def test_a_place_counts_by_the_share_of_what_was_asked(self) -> None:
        scores = fuse({1: 0.2, 2: 0.9}, dict.fromkeys([3, 4], 1.0))
        assert sorted(scores, key=lambda each: -scores[each]) == [3, 4, 2, 1]

    def test_all_that_was_asked_for_is_a_share_of_one(self) -> None:
        weights = Weights.of(["garden", "hose"], {"garden": 5, "hose": 1}, 10, 100)
        assert weights.share("the blue garden hose") == 1
        assert 0 < weights.share("the garden") < weights.share("the hose") < 1
        assert weights.share("gardens and hoses") == 0

    def test_a_word_that_no_note_has_was_asked_for_and_a_seam_between_two_was_not(self) -> None:
        counts = {"garden": 1, "花园": 1}
        assert Weights.of(["garden", "unicorn"], counts, 10, 100).share("garden") < 0.5
        assert Weights.of(["花园", "园水"], counts, 10, 100).share("花园") == 1

    def test_a_single_sign_is_a_small_share(self) -> None:
        weights = Weights.of(["garden", "汽车"], {"garden": 1, "车": 1}, 10, 100)
        assert weights.share("garden 车辆") == 1
        assert weights.share("车辆 辆") == pytest.approx(0.2)

    def test_a_newer_note_is_a_little_better_and_an_undated_one_is_never_old(self) -> None:
        today = date(2026, 6, 1)
        fresh, month, old = (
            freshness(f"memory/{day}-x.md", today) for day in ("2026-06-01", "2026-05-02", "2019-01-01")
        )
        assert fresh > month > old >= 1
        assert freshness("MEMORY.md", today) == fresh
        assert freshness("memory/2026-13-45.md", today) == fresh

    def test_what_overlaps_a_better_passage_is_left_out(self) -> None:
        found = [("a", 10, 20), ("a", 18, 30), ("b", 18, 30), ("a", 31, 40)]
        assert apart(found) == [0, 2, 3]

    def test_the_line_with_the_weightiest_words_is_cited(self) -> None:
        text = "\n".join(["tea is nice", *["filler about nothing " * 3] * 40, "orchids and tea", "end"])
        line, shown = best_lines(text, {"orchid": 3.0, "tea": 1.0})
        assert line == 41
        assert "orchids and tea" in shown
        assert len(shown) <= SNIPPET

    def test_a_short_passage_is_shown_whole(self) -> None:
        assert best_lines("# Home\nkeys\nthe blue one", {"blue": 1.0}) == (2, "# Home\nkeys\nthe blue one")

    def test_one_long_line_is_cut(self) -> None:
        assert len(best_lines("word " * 1000, {"word": 1.0})[1]) == SNIPPET


class TestWays:
    def test_rare_words_are_looked_for_alone(self) -> None:
        assert plan.ways({"a": 10, "b": 20}, {}, 100) == [("a",), ("b",)]

    def test_common_words_must_meet(self) -> None:
        assert plan.ways({"a": 10, "b": 500, "c": 600}, {}, 100) == [("a",), ("b", "c")]

    def test_a_single_common_word_is_looked_for_all_the_same(self) -> None:
        assert plan.ways({"b": 500}, {}, 100) == [("b",)]

    def test_words_that_no_text_has_are_not_looked_for(self) -> None:
        assert plan.ways({"a": 0}, {"车": 0}, 100) == []

    def test_loose_signs_are_looked_for_as_far_as_words_leave_room(self) -> None:
        assert plan.ways({"a": 60}, {"车": 30, "回": 20, "维": 11}, 110) == [("a",), ("维",), ("回",)]
        assert plan.ways({"a": 60, "b": 500}, {"车": 1}, 100) == [("a",)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "memory").mkdir()
    return tmp_path


def put(folder: Path, path: str, text: str = "text\n") -> None:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text(text, encoding="utf-8")


def read(folder: Path, path: str) -> files.Note | None:
    return files.read(folder, path, Stamp(1, 1), {})


class TestFiles:
    def test_notes_are_those_of_memory_and_the_owner_has_two_more(self, folder: Path) -> None:
        for path in ("MEMORY.md", "USER.md", "SOUL.md", "memory/a.md", "memory/2026/b.md", "memory/c.txt"):
            put(folder, path)
        put(folder, "memory/.trash/d.md")
        put(folder, "rooms/fake-7/memory/e.md")
        assert set(files.stamps(folder, personal=True)) == {
            "MEMORY.md",
            "USER.md",
            "memory/a.md",
            "memory/2026/b.md",
        }
        assert set(files.stamps(folder, personal=False)) == {"memory/a.md", "memory/2026/b.md"}

    def test_a_folder_that_is_not_there_has_none(self, tmp_path: Path) -> None:
        assert files.stamps(tmp_path / "nowhere", personal=True) == {}

    def test_links_are_not_followed(self, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
        outside = tmp_path_factory.mktemp("outside")
        put(outside, "secret.md")
        (folder / "memory" / "link.md").symlink_to(outside / "secret.md")
        (folder / "memory" / "sub").symlink_to(outside, target_is_directory=True)
        (folder / "MEMORY.md").symlink_to(outside / "secret.md")
        assert files.stamps(folder, personal=True) == {}
        for path in ("memory/link.md", "memory/sub/secret.md", "MEMORY.md"):
            note = read(folder, path)
            assert note is not None
            assert not note.chunks
            assert note.problem

    def test_a_folder_of_notes_that_leads_out_is_not_entered(self, tmp_path: Path) -> None:
        put(tmp_path, "outside/a.md")
        (tmp_path / "home").mkdir()
        (tmp_path / "home" / "memory").symlink_to(tmp_path / "outside", target_is_directory=True)
        assert files.stamps(tmp_path / "home", personal=False) == {}

    def test_a_second_name_of_a_file_is_not_read(self, folder: Path, tmp_path: Path) -> None:
        put(folder, "memory/a.md")
        os.link(folder / "memory" / "a.md", tmp_path / "other")
        note = read(folder, "memory/a.md")
        assert note is not None
        assert note.problem == "it can't be read (it has a second name)"
        assert note.stamp == Stamp(1, 1), "so that it counts as seen"

    def test_what_is_not_text_or_too_large_has_a_problem_and_no_chunks(self, folder: Path) -> None:
        (folder / "memory" / "binary.md").write_bytes(b"\x7fELF\0\0")
        with (folder / "memory" / "large.md").open("wb") as file:
            file.truncate(50_000_000)
        binary, large = read(folder, "memory/binary.md"), read(folder, "memory/large.md")
        assert binary is not None
        assert large is not None
        assert binary.problem == "it is not text"
        assert large.problem == f"it has 50000000 bytes, and a note has at most {MAX_NOTE}"
        assert not binary.chunks
        assert not large.chunks

    def test_a_pipe_does_not_block(self, folder: Path) -> None:
        os.mkfifo(folder / "memory" / "pipe.md")
        assert files.stamps(folder, personal=False) == {}

    def test_a_note_that_has_gone_is_none(self, folder: Path) -> None:
        assert read(folder, "memory/gone.md") is None

    def test_odd_bytes_and_line_ends_are_text_all_the_same(self, folder: Path) -> None:
        (folder / "memory" / "odd.md").write_bytes(b"\xef\xbb\xbfone\r\ntwo\rthr\xffee")
        note = read(folder, "memory/odd.md")
        assert note is not None
        assert note.chunks[0].text == "one\ntwo\nthr\ufffdee"


class TestVectors:
    def test_off_and_a_missing_extra_give_none(self) -> None:
        assert open_encoder("off") is None

    @pytest.mark.skipif(installed(), reason="the extra `memory` is installed")
    def test_without_the_extra_auto_is_off_and_on_is_refused(self) -> None:
        assert open_encoder("auto") is None
        with pytest.raises(ConfigError, match=r"pip install 'crayfish-gateway\[memory\]'"):
            open_encoder("on")

    @needs_vectors
    def test_the_nearest_come_first_without_what_all_have_in_common(self) -> None:
        rows = [bytes([100, 10, 0, 0]), bytes([100, 0, 10, 0]), bytes([100, 0, 0, 10])] * 200
        matrix = Matrix.of(list(range(600)), rows)
        assert {each % 3 for each in matrix.nearest(bytes([100, 0, 60, 0]), 20)} == {1}

    @needs_vectors
    def test_meaning_is_found_across_words_and_languages(self) -> None:
        encoder = UseEncoder()
        notes, questions = sets()[0]
        matrix = Matrix.of(list(range(len(notes))), encoder.encode(list(notes.values())))
        names = list(notes)
        found = []
        for one, vector in zip(questions, encoder.encode([one.text for one in questions]), strict=True):
            lexical = {names.index(name): share for name, share in shares(notes, one.text).items()}
            scores = fuse(lexical, dict.fromkeys(matrix.nearest(vector, 20), 1.0))
            best = {names[each] for each in sorted(scores, key=lambda each: -scores[each])[:5]}
            found.append(len(best & set(one.answers)) / len(one.answers))
        assert sum(found) / len(found) >= 0.97
