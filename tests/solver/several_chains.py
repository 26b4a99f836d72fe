"""Random chains on shared devices, and a brute force over every assignment and order."""

from fractions import Fraction
from itertools import pairwise, product

from edgekit.schedule.timetable import DeviceTask, NetworkChain, Route, Workload, frame_tasks


def chain(rng, name, parts, devices, rate=None, deadline_us=None):
    """Returns a random network; ``devices`` counts the GPU and its cores."""
    times = []
    for _ in range(parts):
        gpu, dla = rng.uniform(50, 300), rng.uniform(50, 500)
        able = rng.random() < 0.85
        times.append((gpu, *((dla if able else None,) * (devices - 1))))
    hands = []
    for _ in range(parts + 1):
        to_dla, to_gpu = rng.uniform(5, 60), rng.uniform(5, 60)
        core = [0 < place < devices for place in range(devices + 1)]
        hands.append(
            tuple(
                tuple(
                    to_dla if core[b] > core[a] else to_gpu if core[a] > core[b] else 0.0
                    for b in range(devices + 1)
                )
                for a in range(devices + 1)
            )
        )
    energy = tuple(
        tuple((us or 0) * (20 if d == 0 else 9) for d, us in enumerate(row)) for row in times
    )
    period = None if rate is None else 1_000_000 / Fraction(str(rate))
    if deadline_us is None and period is not None:
        deadline_us = float(period)
    return NetworkChain(name, tuple(times), tuple(hands), energy, period, deadline_us)


def workload(chains, devices=2, **limits):
    names = ("GPU", "DLA0", "DLA1")[:devices]
    launch = (None, *((25.0,) * (devices - 1)))
    return Workload(names, launch, (20.0, 9.0, 9.0)[:devices], tuple(chains), **limits)


def assignments(load):
    """Yields every assignment that keeps slots and one core a network."""
    rows = [
        list(product(*([d for d, us in enumerate(row) if us is not None] for row in c.times_us)))
        for c in load.chains
    ]
    for row, own in zip(rows, load.chains, strict=True):
        row[:] = [r for r in row if r] + [(-1 - k,) for k in range(len(own.routes))]
    for places in product(*rows):
        if load.one_core and any(
            len(load_used(load, i, row) - {0}) > 1 for i, row in enumerate(places)
        ):
            continue
        opened = [0] * len(load.devices)
        for own, row in zip(load.chains, places, strict=True):
            if row[0] < 0:
                for device, count in enumerate(own.routes[-1 - row[0]].loadables):
                    opened[device] += count
                continue
            for before, after in zip((0, *row), row, strict=False):
                opened[after] += after != before
        if load.max_loadables is None or max(opened[1:], default=0) <= load.max_loadables:
            yield places


def load_used(load, number, row):
    """Returns the devices of one network."""
    return {task.device for task in frame_tasks(load, number, row)}


def route(rng, devices, core=1):
    """Returns a random plan of a whole network: GPU, one core, GPU."""
    tasks = []
    for number, device in enumerate((0, core, 0)[rng.randrange(2) :]):
        tasks.append(DeviceTask(device, number, number, rng.uniform(30, 200), 0.0))
    count = tuple(int(d == core) for d in range(devices))
    return Route(tuple(tasks), rng.uniform(1000, 9000), count)


def orders(load, places):
    """Yields the ends of all frames, (chain, frame): us, of every order without needless waits."""
    tasks = [frame_tasks(load, i, row) for i, row in enumerate(places)]
    jobs = [(i, k) for i, frames in enumerate(load.frames) for k in range(frames)]

    def go(done, free, ends):
        if all(done[j] == len(tasks[i]) for j, (i, _) in enumerate(jobs)):
            yield dict(zip(jobs, ends, strict=True))
            return
        for j, (i, k) in enumerate(jobs):
            if done[j] == len(tasks[i]):
                continue
            if k and j and done[j] >= done[j - 1]:
                continue  # frames of a network in turn
            task = tasks[i][done[j]]
            start = max(ends[j], free[task.device], load.arrival_us(i, k))
            end = start + task.work_us
            yield from go(
                (*done[:j], done[j] + 1, *done[j + 1 :]),
                (*free[: task.device], end, *free[task.device + 1 :]),
                (*ends[:j], end, *ends[j + 1 :]),
            )

    yield from go((0,) * len(jobs), (0.0,) * len(load.devices), (0.0,) * len(jobs))


def check_timetable(load, table, *, slack=1e-6):
    """Fails unless a timetable keeps order, devices, arrivals and the frames of its cycle."""
    whole = float(load.hyperperiod_us or 0)
    busy = [[] for _ in load.devices]
    for i, frames in enumerate(load.frames):
        tasks = frame_tasks(load, i, table.places[i])
        assert len(table.starts_us[i]) == len(table.ends_us[i]) == frames
        for k in range(frames):
            now = load.arrival_us(i, k)
            rows = zip(tasks, table.starts_us[i][k], table.ends_us[i][k], strict=True)
            for task, start, end in rows:
                assert start >= now - slack
                assert end - start >= task.work_us - slack
                busy[task.device].append((start, end))
                now = end
    for spans in busy:
        shifted = list(spans)
        for cycle in range(1, 16 if whole else 1):
            shifted += [(a + cycle * whole, b + cycle * whole) for a, b in spans]
        shifted.sort()
        assert all(a[1] <= b[0] + slack for a, b in pairwise(shifted))
