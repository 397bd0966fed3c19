"""How well and how fast notes are found.

    .venv/bin/python -m bench.memory [--words] [--large 100000] [--url postgresql+asyncpg:…]

Recall: the three sets of `bench/notes.tsv`, alone and among other notes, by words
and, with the extra `memory`, by vectors, too.
Speed: a search in a large folder, and the time to take in one changed note.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from gateway.clock import SystemClock
from gateway.memory.vectors import Encoder, open_encoder
from gateway.memory.words import query, terms
from gateway.recall import Recall
from gateway.store.engine import Database, open_database
from gateway.store.migrate import create

NOTES = Path(__file__).with_name("notes.tsv")

ENGLISH = """
account airport album apartment archive attic backpack balcony bakery basement battery bicycle blanket board
bridge budget builder bus cabin calendar camera campaign candle carpet chair charger chart choir cinema
client coat committee compiler concert cousin curtain customer cycle deadline delivery dentist desk dinner
draft drill driver editor engine essay estimate exam exhibition factory fence festival filter flight
forecast fountain frame friend garage garden gate gift grant guide guitar hallway hammer harbour heater
helmet hostel interview invoice island jacket journal kitchen ladder lamp laptop lawyer lecture letter
library licence lunch manager manual map market meeting mirror museum neighbour newsletter notebook office
oven package painting parcel parking party permit phone photo picnic plan plant platform player poster
printer project proposal queue radio ramp receipt recipe release repair report request reservation
restaurant review roof router sample schedule school screen sensor server shelf shop sketch sofa station
story stove supplier survey table team tent ticket tool tower trainer translation trip tunnel umbrella
update valley vendor video village visitor wallet warehouse website window workshop
"""
DONE = """
moved checked delayed ordered cleaned planned sold painted measured borrowed counted opened closed
"""
WHEN = (
    "on Monday",
    "in June",
    "next week",
    "before lunch",
    "after the holidays",
    "at the weekend",
    "in the evening",
    "by Friday",
    "last month",
    "in the autumn",
    "at half past three",
    "on the 21st",
)
CHINESE = """
项目 会议 报告 花园 厨房 打印机 快递 发票 电影 超市 仓库 电梯 地铁 行李 相机 书架 窗帘 音响 雨伞 课程 讲座
展览 球赛 餐厅 菜单 蛋糕 牛奶 水果 桌子 椅子 台灯 地毯 洗衣机 空调 网站 接口 版本 文档 需求 设计 图纸 样品
货物 供应商 同事 邻居 朋友 司机 律师 编辑 记者 画家 村庄 河流 码头 机场 车站 博物馆 图书馆 公园 操场 教室
宿舍 帐篷 背包 地图 日历 通知 申请 预约 名单 问卷 广告 海报 视频 照片 录音 收据 账单 工资 奖金 保修 维修
搬家 旅行 比赛 考试 作业 论文 翻译 面包 咖啡 茶叶
"""
WAS = """
已经订好 需要检查 推迟到 改在 取消了 卖掉了 修好了 送到了 登记了 还没定 由小周负责 交给老吴
"""
THEN = """
周一 下个月 明天下午 年底 节后 月初 周末 早上九点 晚饭后 二十一号
"""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and the notes that answer it."""

    kind: str
    answers: Sequence[str]
    text: str


def sets() -> list[tuple[dict[str, str], list[Question]]]:
    """Return the notes and questions of each set."""
    found: list[tuple[dict[str, str], list[Question]]] = []
    for line in NOTES.read_text(encoding="utf-8").splitlines():
        if line.startswith("# Set"):
            found.append(({}, []))
        match line.split("\t"):
            case ["N", name, text]:
                found[-1][0][name] = text
            case ["Q", kind, answers, text]:
                found[-1][1].append(Question(kind, answers.split(","), text))
    return found


def distractors() -> Iterator[str]:
    """Yield notes about other things, in turn English and Chinese, always the same ones."""
    chance = random.Random(7)
    while True:
        one, two, three = chance.sample(ENGLISH.split(), 3)
        did, also = chance.sample(DONE.split(), 2)
        yield f"The {one} for the {two} was {did} {chance.choice(WHEN)}; the {three} was {also}."
        one, two, three = chance.sample(CHINESE.split(), 3)
        was, also = chance.sample(WAS.split(), 2)
        yield f"{one}和{two}{was}{chance.choice(THEN.split())},{three}{also}。"


def strangers() -> Iterator[str]:
    """Yield those of them that have no word in common with any question."""
    asked = {term for _, questions in sets() for question in questions for term in query(question.text)}
    return (text for text in distractors() if asked.isdisjoint(terms(text)))


async def recall_at_5(recall: Recall, folder: Path, questions: Sequence[Question]) -> dict[str, float]:
    """Return the share of answers among the first five results, by kind and for all."""
    shares: dict[str, list[float]] = defaultdict(list)
    for question in questions:
        found = await recall.search(folder, question.text, personal=True)
        names = {Path(one.path).stem for one in found[:5]}
        share = len(names & set(question.answers)) / len(question.answers)
        language = "zh" if any("\u4e00" <= sign <= "\u9fff" for sign in question.text) else "en"
        kind = question.kind if "-" in question.kind else f"{language}-{question.kind}"
        shares[kind].append(share)
        shares["all"].append(share)
    return {kind: statistics.mean(values) for kind, values in shares.items()}


async def quality(db: Database, home: Path, count: int, encoder: Encoder | None) -> None:
    """Print recall for each set: alone, among `count` others, and among others that share words."""
    way = "with vectors" if encoder else "words only"
    company: dict[str, Callable[[], Iterator[str]]] = {
        "alone": lambda: iter(()),
        f"among {count}": strangers,
        f"among {count} that share words": distractors,
    }
    for number, (notes, questions) in enumerate(sets(), 1):
        for among, others in company.items():
            folder = home / f"{way} {number} {among}"
            await asyncio.to_thread(write, folder, notes, islice(others(), count))
            recall = Recall(db=db, clock=SystemClock(), encoder=encoder)
            await recall.refresh(folder, personal=True)
            await recall.encode(folder)
            shares = await recall_at_5(recall, folder, questions)
            told = " ".join(f"{kind} {share:.2f}" for kind, share in sorted(shares.items()))
            print(f"set {number}, {way}, {among}: {told}")


def write(folder: Path, notes: dict[str, str], others: Iterator[str]) -> None:
    """Write each note into a file of its own, and of others fifty into a file, each a chunk."""
    (folder / "memory").mkdir(parents=True)
    for name, text in notes.items():
        (folder / "memory" / f"{name}.md").write_text(f"{text}\n", encoding="utf-8")
    number = 0
    while batch := list(islice(others, 50)):
        text = "".join(f"# {at}\n{line}\n" for at, line in enumerate(batch))
        (folder / "memory" / f"other{number}.md").write_text(text, encoding="utf-8")
        number += 1


@dataclass(slots=True)
class Timed:
    """Milliseconds by the clock, and of CPU: a busy machine has less influence on these."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    _began: tuple[float, float] = (0.0, 0.0)

    def __enter__(self) -> None:
        self._began = time.perf_counter(), time.process_time()

    def __exit__(self, *_: object) -> None:
        wall, cpu = self._began
        self.wall.append((time.perf_counter() - wall) * 1e3)
        self.cpu.append((time.process_time() - cpu) * 1e3)

    def __str__(self) -> str:
        told = []
        for name, taken in (("wall", self.wall), ("CPU", self.cpu)):
            parts = statistics.quantiles(taken, n=20)
            told.append(f"{name} p50 {parts[9]:.1f} ms, p95 {parts[18]:.1f} ms, longest {max(taken):.1f} ms")
        return "; ".join(told)


async def speed(db: Database, home: Path, count: int) -> None:
    """Print how long things take with `count` chunks."""
    folder = home / "large"
    await asyncio.to_thread(write, folder, {}, islice(distractors(), count))
    recall = Recall(db=db, clock=SystemClock())
    began = time.perf_counter()
    await recall.refresh(folder, personal=True)
    print(f"{count} chunks indexed in {time.perf_counter() - began:.1f} s: {await recall.count(folder)}")
    asked = [question.text for _, questions in sets() for question in questions]
    chance = random.Random(8)
    asked += [" ".join(chance.sample(ENGLISH.split(), 3)) for _ in range(100)]
    asked += ["".join(chance.sample(CHINESE.split(), 2)) for _ in range(100)]
    await recall.search(folder, "warm up", personal=True)
    timed = Timed()
    for text in asked:
        with timed:
            await recall.search(folder, text, personal=True)
    print(f"{len(asked)} searches: {timed}")
    timed = Timed()
    for number in range(20):
        note = folder / "memory" / "other0.md"
        note.write_text(f"{note.read_text(encoding='utf-8')}\nline {number} is new\n", encoding="utf-8")
        with timed:
            await recall.refresh(folder, personal=True)
    print(f"one changed note taken in: {timed}")


async def main(chosen: argparse.Namespace) -> None:
    """Print everything."""
    home = Path(tempfile.mkdtemp(prefix="crayfish-bench-"))
    try:
        url = chosen.url or f"sqlite+aiosqlite:///{home}/crayfish.db"
        db = await open_database(url, SystemClock())
        await db.write(create)
        encoders: list[Encoder | None] = [None]
        encoders += [one] if (one := open_encoder("auto")) and not chosen.words else []
        for encoder in encoders if chosen.distractors else ():
            await quality(db, home, chosen.distractors, encoder)
        if chosen.large:
            await speed(db, home, chosen.large)
        await db.close()
    finally:
        shutil.rmtree(home)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--distractors", type=int, default=3000, help="0: only the speed")
    parser.add_argument("--large", type=int, default=0)
    parser.add_argument("--url", default="")
    parser.add_argument("--words", action="store_true", help="without vectors")
    asyncio.run(main(parser.parse_args()))
