"""Timers that keep one beat ring together, so that an idle node wakes once for many of them.

Most of what an idle node takes is waking up. 64 shards that look around twice a second, and 128 consumers
that are listened for, wake it 213 times a second where each keeps its own time: 1.9 and 2.7 % of a core,
where they keep a beat 1.8 and 1.7 (two alternating runs of each).

Not all at one instant: with 100,000 actors in memory the shards have 35 ms of work at each beat, for all of
which everything else on the event loop would wait. So a beat has lanes, which follow each other evenly.
"""

LANES_PER_BEAT = 8


def next_beat(now: float, every_s: float, lane: int = 0, lanes: int = LANES_PER_BEAT) -> float:
    """The next instant of the lane, half to one and a half `every_s` from now, in the same clock's seconds.

    Never the one at hand: a timer that rings a moment early would else be set to it again.
    """
    offset_s = lane % lanes * every_s / lanes
    return (round((now - offset_s) / every_s) + 1) * every_s + offset_s
