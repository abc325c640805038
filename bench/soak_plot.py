"""Draws the memory and the tail of `bench/soak` over time, as SVG."""

import math

WIDTH, LEFT, RIGHT, TOP = 960, 70, 130, 40
PANEL, GAP = 230, 60
#: Points of a line; more seconds are put together.
POINTS = 450
COLOURS = ["#1b6ca8", "#2e8b57", "#d9822b", "#b03060"]


def together(values, how):
    """At most POINTS of `values`, neighbours put together by `how`."""
    size = max(1, math.ceil(len(values) / POINTS))
    return [how(values[at:at + size]) for at in range(0, len(values), size)]


def line(xs, ys, colour):
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys))
    return f'<polyline fill="none" stroke="{colour}" stroke-width="1.2" points="{points}"/>'


def text(x, y, content, more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{content}</text>'


class Panel:
    """Axes at a place, linear from zero or logarithmic."""

    def __init__(self, top, title, minutes, low, high, is_log=False):
        self.top, self.minutes, self.low, self.high, self.is_log = top, minutes, low, high, is_log
        self.parts = [text(LEFT, top - 10, title, 'font-weight="bold"')]
        self.parts.append(f'<rect x="{LEFT}" y="{top}" width="{WIDTH - LEFT - RIGHT}" height="{PANEL}" fill="none" stroke="#999"/>')
        self.names = 0

    def x(self, minute):
        return LEFT + (WIDTH - LEFT - RIGHT) * minute / self.minutes

    def y(self, value):
        if self.is_log:
            share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.top + PANEL * (1 - min(max(share, 0), 1))

    def mark_y(self, value, label):
        y = self.y(value)
        self.parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        self.parts.append(text(LEFT - 6, y + 4, label, 'text-anchor="end"'))

    def mark_minutes(self):
        step = next(step for step in (0.25, 0.5, 1, 2, 5, 10, 30, 60, 120) if self.minutes / step <= 12)
        for number in range(int(self.minutes / step) + 1):
            self.parts.append(text(self.x(number * step), self.top + PANEL + 16, f"{number * step:g}", 'text-anchor="middle"'))

    def moment(self, minute):
        x = self.x(minute)
        self.parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{self.top}" y2="{self.top + PANEL}" stroke="#bbb" stroke-dasharray="3 3"/>'
        )

    def draw(self, name, minutes, values):
        colour = COLOURS[self.names % len(COLOURS)]
        self.parts.append(line([self.x(minute) for minute in minutes], [self.y(value) for value in values], colour))
        self.parts.append(text(WIDTH - RIGHT + 8, self.top + 14 + 16 * self.names, name, f'fill="{colour}"'))
        self.names += 1


def svg(rows, bound_mib, backups_s):
    """The plot; `bound_mib`: what resident memory is to stay below."""
    minutes = together([row["at_s"] / 60 for row in rows], max)
    moments = [moment / 60 for moment in backups_s]
    length = max(rows[-1]["at_s"] / 60, 1e-6)
    mib = [row["rss"] / (1 << 20) for row in rows]
    high = 1.15 * max(*mib, bound_mib)
    memory = Panel(TOP, "Resident memory, MiB", length, 0, high)
    for part in range(5):
        memory.mark_y(high * part / 4, f"{high * part / 4:.0f}")
    memory.draw("resident", minutes, together(mib, max))
    memory.draw("anonymous", minutes, together([row["anonymous"] / (1 << 20) for row in rows], max))
    memory.draw("--memory + 64 MiB", minutes, [bound_mib] * len(minutes))
    longest = max(max(row["latency"]["max_us"], row["gap_us"]) for row in rows)
    tail = Panel(TOP + PANEL + GAP, "Replies, from the intended time (logarithmic)", length, 50, max(2 * longest, 1000), True)
    for exponent in range(2, 8):
        if 10**exponent <= tail.high:
            tail.mark_y(10**exponent, f"{10**exponent / 1000:g} ms")
    for name, key in [("p50", "p50_us"), ("p99", "p99_us"), ("p99.9", "p999_us"), ("longest", "max_us")]:
        tail.draw(name, minutes, together([row["latency"][key] for row in rows], max))
    rates = [row["latency"]["count"] for row in rows]
    cleaned = [row["cleaned_bytes"] / 1e6 for row in rows]
    work = Panel(TOP + 2 * (PANEL + GAP), "Answered, thousands a second; moved by cleaning, MB a second", length, 0,
                 1.15 * max(max(rates) / 1e3, *cleaned, 1))
    for part in range(5):
        work.mark_y(work.high * part / 4, f"{work.high * part / 4:.0f}")
    mean = lambda values: sum(values) / len(values)
    work.draw("answered", minutes, together([rate / 1e3 for rate in rates], mean))
    work.draw("cleaned", minutes, together(cleaned, mean))
    parts = []
    for panel in (memory, tail, work):
        panel.mark_minutes()
        for moment in moments:
            panel.moment(moment)
        parts += panel.parts
    height = TOP + 3 * (PANEL + GAP)
    parts.append(text((WIDTH - RIGHT + LEFT) / 2, height - 8, "minutes; dashed: a backup begins", 'text-anchor="middle"'))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">'
    return "\n".join([head, f'<rect width="{WIDTH}" height="{height}" fill="white"/>', *parts, "</svg>", ""])
