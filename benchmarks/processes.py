"""Rows of one chain spread over 1, 2 and 4 processes of this machine: seconds a sweep, and bytes exchanged.

Each process has one CPU device. ``sums (bytes)`` counts, in the program that XLA has compiled, the numbers of one sweep
that are summed over all devices or gathered from them: it does not depend on the machine. ``sent (bytes)`` is what
passed through the loopback interface meanwhile, for each sweep and process; a ring of P devices sends 2 (P - 1)/P times
the bytes of a sum. Processes that share cores are no faster than one. Run::

    python benchmarks/processes.py [--rows 2084 20840] [--draws 100] [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from common import PAPER, RESULTS, Results, draw_teacher, make_model, print_table

import pymc_gibbsnn as pmg

COUNTS = (1, 2, 4)
COLLECTIVES = r"= (.*?) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\("
SIZES = {"pred": 1, "s32": 4, "u32": 4, "f32": 4, "s64": 8, "u64": 8, "f64": 8}


def exchanged(program: str) -> tuple[int, int]:
    """Count the exchanges of one sweep, and their bytes, in a program of XLA as text.

    Loops whose length XLA knows, over units say, count as often as they run; the others, over draws and sweeps, once.
    """
    found, calls = {}, {}
    for line in program.splitlines():
        if opens := re.match(r"(ENTRY )?%?([\w.-]+) \(.*\{$", line):
            name = opens[2]
            found[name], calls[name] = [0, 0], []
            if opens[1]:
                entry = name
        if collective := re.search(COLLECTIVES, line):
            shapes = re.findall(r"(\w+)\[([\d,]*)\]", collective[1])
            size = sum(SIZES[kind] * math.prod(int(n) for n in shape.split(",") if n) for kind, shape in shapes)
            found[name] = [found[name][0] + 1, found[name][1] + size]
        times = int((re.search(r'known_trip_count":\{"n":"(\d+)"', line) or [0, 1])[1])
        for called in re.findall(r"(?:body|calls|branch_computations|called_computations)=\{?([%\w., -]+)", line):
            calls[name] += [(one, times) for one in re.findall(r"%([\w.-]+)", called)]

    def total(name: str) -> tuple[int, int]:
        inner = [(times, total(one)) for one, times in calls[name]]
        return tuple(found[name][i] + sum(times * part[i] for times, part in inner) for i in range(2))

    return total(entry)


def work(address: str, count: int, index: int, rows: int, draws: int) -> None:
    """Sample in one of several processes; the first prints what it found."""
    import jax

    from pymc_gibbsnn.drivers.program import Program

    if count > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(address, count, index)
    counter, run, seen = Path("/sys/class/net/lo/statistics/tx_bytes"), Program.run, []

    def watched(program, count, **arguments):
        seen.append((int(counter.read_text()) if counter.exists() else 0, program, count))
        return run(program, count, **arguments)

    Program.run = watched
    problem = replace(PAPER, n=rows)
    teacher = draw_teacher(problem, seed=0)
    with make_model(problem, teacher):
        idata = pmg.sample(
            draws,
            step=pmg.GibbsNN(anneal=None, sweeps_per_draw=1),
            chains=1,
            shards=count,
            tune=0,
            initvals=teacher.point,
            var_names=["b2"],
            random_seed=1,
            progressbar=False,
        )
    sums, size = exchanged(seen[0][1].compiled.as_text())
    sent = int(counter.read_text()) - seen[1][0] if counter.exists() else float("nan")
    seconds = idata["posterior"].attrs["sampling_time"] / (draws - 1)
    if index == 0:
        found = {"ms a sweep": 1e3 * seconds, "sums": sums, "sums (bytes)": size}
        print(json.dumps(found | {"sent (bytes)": sent / (draws - seen[0][2]) / count}))


def launch(count: int, rows: int, draws: int) -> dict:
    """Start the processes, and return what the first one prints."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{one.getsockname()[1]}"
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, *map(str, ["--work", address, count, i, "--rows", rows, "--draws", draws])],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=1"},
        )
        for i in range(count)
    ]
    printed = [process.communicate()[0] for process in processes]
    return json.loads(printed[0].splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[2084, 20840])
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, default=RESULTS / "processes.json")
    arguments = parser.parse_args()
    if arguments.work:
        address, count, index = arguments.work
        work(address, int(count), int(index), arguments.rows[0], arguments.draws)
        return
    results, table = Results(arguments.output), []
    for rows in arguments.rows:
        for count in COUNTS:
            row = {"rows": rows, "processes": count} | launch(count, rows, arguments.draws)
            table.append(row)
            results[f"{rows} rows, {count} processes"] = row
    print_table(f"Rows of one chain over processes, widths {PAPER.d}-{PAPER.hidden}-1", table)


if __name__ == "__main__":
    main()
