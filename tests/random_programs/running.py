"""Many programs through many routes, in a process that may hang or die.

A worker takes lines ``seed`` or ``seed route`` (to shrink that fault) and answers in lines of JSON; the
command waits for each answer only so long, and starts another worker where one does not come.
"""

from __future__ import annotations

import gc
import json
import os
import queue
import re
import resource
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, TextIO

from tests.random_programs.description import Program, source
from tests.random_programs.shares import routes_of

# What computes without an end is stopped by the CPU time of the worker, which does not depend on what
# else the machine does; what waits without an end by the clock.
CPU_LIMIT = 90  # seconds for one route
LIMIT = 900.0
LIFE = (
    400  # programs of one worker, and the memory it may have in MiB: what is compiled stays there
)
MEMORY = 3000

# -- the worker --------------------------------------------------------------------------------------


def work(lines: TextIO, answers: TextIO, every: bool, only: Sequence[str], kinds: str = "") -> None:
    """Answer each line; what anything else prints goes to where errors go."""
    import logging

    from pytensor import config

    from tests.random_programs.answers import NotAProgram
    from tests.random_programs.oracles import Case
    from tests.random_programs.plain import plainly
    from tests.random_programs.routes import ROUTES
    from tests.random_programs.writing import program

    # PyTensor tells of each of its rewrites that fails; the graph stays right.
    logging.getLogger("pytensor.graph.rewriting.basic").setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore")

    def say(**what: Any) -> None:
        answers.write(json.dumps(what) + "\n")
        answers.flush()

    # What the libraries are does not go, and would be looked at by each collection.
    gc.freeze()
    # A node's lines are for messages only, and looking for them takes a third of writing it.
    with plainly(), config.change_flags(traceback__limit=0):
        for line in lines:
            seed, _, name = line.strip().partition(" ")
            one = program(int(seed), (lambda k: bool(re.search(kinds, k))) if kinds else None)
            limit_cpu_time(3 * CPU_LIMIT)
            if name:
                say(route=name, **shrink(one, name))
                continue
            say(features=one.features)
            try:
                case = Case(one)
                names = [n for n in only if n in ROUTES] or routes_of(one, every)
                for name in names:
                    say(begins=name)
                    limit_cpu_time(CPU_LIMIT)
                    began = time.process_time()
                    verdict = ROUTES[name](case)
                    say(
                        route=name,
                        status=verdict.status,
                        what=verdict.what,
                        signature=verdict.signature,
                        seconds=time.process_time() - began,
                    )
            except NotAProgram as error:
                say(route="PyTensor", status="refuses", what=str(error), signature=str(error)[:60])
            say(done=int(seed), memory=memory())


def memory() -> int:
    """The most that this process had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def limit_cpu_time(seconds: int) -> None:
    """The kernel ends this process after so much more of it, also in the middle of native code."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    end = int(used.ru_utime + used.ru_stime) + seconds + 1
    resource.setrlimit(resource.RLIMIT_CPU, (end, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def shrink(one: Program, name: str, seconds: float = 45.0) -> dict[str, str]:
    """The text of the smallest program that fails as ``one`` does, and what is said of it."""
    from tests.random_programs.answers import NotAProgram
    from tests.random_programs.oracles import Case
    from tests.random_programs.routes import ROUTES
    from tests.random_programs.shrinking import shrunk

    first = ROUTES[name](Case(one))

    def same(verdict: Any) -> bool:
        alike = verdict.signature[:45] == first.signature[:45] or first.status != "refused"
        return verdict.status == first.status and alike

    def fails(p: Program) -> bool:
        try:
            return same(ROUTES[name](Case(p)))
        except NotAProgram:
            return False

    least = shrunk(one, fails, seconds)
    return {"text": source(least), "what": ROUTES[name](Case(least)).what}


# -- the command -------------------------------------------------------------------------------------


class Hang(Exception):
    """No answer in time, or no process to give one."""


class Worker:
    def __init__(self, arguments: Sequence[str]) -> None:
        command = [sys.executable, "-m", "tests.random_programs", "--worker", *arguments]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.answers: queue.Queue[str | None] = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.age = 0

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put(None)

    def ask(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self, limit: float = LIMIT) -> dict[str, Any]:
        try:
            line = self.answers.get(timeout=limit)
        except queue.Empty:
            raise Hang(f"no answer in {limit:.0f} s") from None
        if line is None:
            status = self.process.wait()
            if status == -signal.SIGXCPU:
                raise Hang(f"no end in {CPU_LIMIT} s of CPU time")
            raise Hang(f"the process died with exit status {status}")
        return json.loads(line)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self.reader.join()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


def run(
    seeds: Iterator[int],
    *,
    minutes: float,
    most: int,
    every: bool = False,
    only: Sequence[str] = (),
    kinds: str = "",
    shrinking: bool = True,
    out: Any = print,
) -> int:
    """Programs until the time is over; the exit status is 1 where something was wrong or hung."""
    end = time.monotonic() + 60 * minutes
    arguments = ["--all-routes"] if every else []
    for name in only:
        arguments += ["--only", name]
    arguments += ["--kinds", kinds] if kinds else []
    by_route: Counter[tuple[str, str]] = Counter()
    features: Counter[str] = Counter()
    bad: Counter[tuple[str, str]] = Counter()  # features of programs with faults
    signatures: Counter[str] = Counter()
    programs, grown = 0, False
    seconds: Counter[str] = Counter()
    worker: Worker | None = None
    try:
        for seed in seeds:
            if time.monotonic() > end or programs == most:
                break
            if worker is None or worker.age >= LIFE or grown:
                if worker is not None:
                    worker.stop()
                worker = Worker(arguments)
                grown = False
            worker.age += 1
            programs += 1
            begun, mine, faults = "writing", {}, []
            try:
                worker.ask(str(seed))
                while "done" not in (said := worker.answer()):
                    mine = said.get("features", mine)
                    begun = said.get("begins", begun)
                    if "route" in said:
                        by_route[said["route"], said["status"]] += 1
                        seconds[said["route"]] += said.get("seconds", 0.0)
                        if said["status"] in ("wrong", "refused", "differs"):
                            faults.append(said)
                grown = said.get("memory", 0) > MEMORY
            except (Hang, BrokenPipeError) as hang:
                by_route[begun, "hangs"] += 1
                faults.append(
                    {
                        "route": begun,
                        "status": "hangs",
                        "what": str(hang),
                        "signature": f"hang {seed}",
                    }
                )
                worker.stop()
                worker = None
            features.update(mine)
            for said in faults:
                bad.update((kind, said["status"]) for kind in mine)
                key = f"{said['route']}, {said['signature']}"
                signatures[key] += 1
                if signatures[key] > 1:
                    continue
                text = ""
                if shrinking and said["status"] != "hangs":
                    worker = worker or Worker(arguments)
                    try:
                        worker.ask(f"{seed} {said['route']}")
                        small = worker.answer()
                        said["what"], text = small["what"], small["text"]
                    except (Hang, BrokenPipeError) as hang:
                        text = f"(shrinking it: {hang})"
                        worker.stop()
                        worker = None
                out(
                    f"==== {said['status']}: {said['route']}, seed {seed}\n{said['what'][:1500]}\n\n{text}"
                )
                sys.stdout.flush()
    except KeyboardInterrupt:
        out("interrupted")
    finally:
        if worker is not None:
            worker.stop()
    report(by_route, seconds, features, bad, signatures, programs, out)
    return 1 if any(status in ("wrong", "hangs") for _, status in by_route) else 0


def report(
    by_route: Any, seconds: Any, features: Any, bad: Any, signatures: Any, programs: int, out: Any
) -> None:
    statuses = [
        "right",
        "wrong",
        "refused",
        "hangs",
        "shape",
        "nan",
        "nothing",
        "differs",
        "refuses",
    ]
    out(f"{'':36}" + "".join(f"{s:>9}" for s in [*statuses, "CPU s"]))
    for name in dict.fromkeys(r for r, _ in by_route):
        counts = "".join(f"{by_route[name, s] or '':>9}" for s in statuses)
        out(f"{name:36}{counts}{seconds[name]:>9.1f}")
    out("")
    out(f"{'':28}{'used':>9}{'wrong':>9}{'refused':>9}")
    for kind, n in sorted(features.items(), key=lambda item: -item[1]):
        out(f"{kind:28}{n:>9}{bad[kind, 'wrong'] or '':>9}{bad[kind, 'refused'] or '':>9}")
    out("")
    for key, n in signatures.most_common():
        out(f"{n:4} {key}")
    checked = sum(n for (_, s), n in by_route.items() if s in ("right", "wrong", "refused"))
    wrong = sum(n for (_, s), n in by_route.items() if s in ("wrong", "hangs"))
    refused = sum(n for (_, s), n in by_route.items() if s == "refused")
    out(f"\n{programs} programs, {checked} comparisons, {wrong} wrong, {refused} refused")
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = children.ru_utime + children.ru_stime
    out(f"{used:.0f} s of CPU time, {used / max(programs, 1):.2f} s a program")


def worker_streams() -> tuple[TextIO, TextIO]:
    """Where the questions come from and the answers go; what libraries print goes elsewhere."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return sys.stdin, answers
