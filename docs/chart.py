"""The charts of measured figures, as SVG for light and dark pages: times natively and with Allograft on one logarithmic
axis, and how many times as fast several ways are."""

import hashlib
import re

NATIVE, OURS, INK, FAINT, PAPER = "#8c6d1f", "#1a7f5a", "#1f2328", "#d1d9e0", "#ffffff"
OTHERS = ["#0969da", "#bf3989", "#6e7781", "#953800", "#8250df", "#1b7c83", "#cf222e"]
DARK = {NATIVE: "#e3b341", OURS: "#3fb98a", INK: "#e6edf3", FAINT: "#3d444d", PAPER: "#0d1117",
        "#0969da": "#58a6ff", "#bf3989": "#f778ba", "#6e7781": "#8b949e", "#953800": "#f0883e", "#8250df": "#bc8cff",
        "#1b7c83": "#39c5cf", "#cf222e": "#ff7b72"}
MARKS = "oDs^vPX*<"


def made_of(what):
    """What a chart says of its source: a checksum of the figures and of this file."""
    with open(__file__, "rb") as file:
        source = file.read()
    return "figures " + hashlib.sha256(repr(what).encode() + source).hexdigest()


def both_ways(svg):
    """Gives the chart a second set of colours, for pages that are dark."""
    rules = "".join(f'[style*="{kind}: {light}"] {{ {kind}: {dark} !important }}\n'
                    for light, dark in DARK.items() for kind in ("fill", "stroke"))
    style = f"<style>@media (prefers-color-scheme: dark) {{\n{rules}}}</style>\n"
    return re.sub(r"(<svg [^>]*>\n)", lambda match: match[1] + style, svg, count=1)


def described(rows):
    """What a chart shows, for its checksum."""
    return [[cell if isinstance(cell, (str, float, int, type(None))) else (cell.values, cell.name) for cell in row]
            for row in rows]


def began(n_rows):
    """(pyplot, figure, axes) for that many rows, in our colours."""
    import matplotlib
    matplotlib.use("svg")
    from matplotlib import pyplot

    pyplot.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "allograft", "font.size": 11,
                            "font.family": ["sans-serif"], "text.color": INK, "axes.labelcolor": INK,
                            "xtick.color": INK, "ytick.color": INK})
    figure, axes = pyplot.subplots(figsize=(8.6, 1.3 + (0.4 if n_rows < 20 else 0.22) * n_rows))
    axes.set_xscale("log")
    return pyplot, figure, axes


def ended(drawing, labels, source, path):
    pyplot, figure, axes = drawing
    axes.set_ylim(-0.6, len(labels) - 0.3)
    axes.set_yticks(list(range(len(labels)))[::-1], labels)
    axes.tick_params(length=0, pad=8)
    axes.minorticks_off()
    axes.grid(axis="x", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    axes.set_facecolor(PAPER)
    legend = figure.legend(loc="upper right", ncols=4, frameon=False)
    lines = (len(legend.get_texts()) + 3) // 4
    figure.set_facecolor(PAPER)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.28 * lines / figure.get_size_inches()[1]))
    figure.savefig(path, metadata={"Date": None, "Creator": None, "Description": source})
    pyplot.close(figure)
    with open(path, encoding="utf-8") as file:
        svg = file.read()
    with open(path, "w", encoding="utf-8") as file:
        file.write(both_ways(svg))


def named_ticks(axes, low, high):
    """Powers of ten between two times in microseconds, in words."""
    powers = [i for i in range(-3, 9) if low <= 10.0 ** i <= high]
    axes.set_xlim(low, high)
    axes.set_xticks([10.0 ** i for i in powers], [f"{10 ** (i % 3)} {('ns', 'us', 'ms', 's')[i // 3 + 1]}" for i in powers])


def micros(figure):
    """(value, least, most) in microseconds."""
    factor = figure.unit()[1] * 1e6
    return figure.value * factor, min(figure.values) * factor, max(figure.values) * factor


def beside(axes, text, place, at, left, colour):
    axes.annotate(text, (at, place), (-9 if left else 9, 0), textcoords="offset points", va="center", color=colour,
                  ha="right" if left else "left")


def draw_times(rows, where, source, path):
    """rows: (label, native, ours, gain); what lies across a point reaches from the least to the most."""
    drawing = began(len(rows))
    axes, ends = drawing[2], []
    for place, (_, native, ours, gain) in zip(range(len(rows))[::-1], rows):
        (before, *first), (after, *second) = micros(native), micros(ours)
        ends += first + second
        axes.plot([after, before], [place, place], color=FAINT, linewidth=3, zorder=1)
        for reach, colour in ((first, NATIVE), (second, OURS)):
            axes.plot(reach, [place, place], color=colour, linewidth=1.5, zorder=2, marker="|", markersize=9)
        beside(axes, native.text(False), place, first[before >= after], before < after, NATIVE)
        beside(axes, ours.text(False), place, second[before < after], before >= after, OURS)
        axes.annotate(gain, ((before * after) ** .5, place), (0, 5), textcoords="offset points", ha="center")
    places = range(len(rows))[::-1]
    axes.scatter([micros(row[1])[0] for row in rows], places, s=60, color=NATIVE, zorder=3, label="native")
    axes.scatter([micros(row[2])[0] for row in rows], places, s=60, color=OURS, zorder=3, label="with Allograft")
    axes.set_xlabel(f"time on an {where} (logarithmic)")
    named_ticks(axes, min(ends) / 6, max(ends) * 6)
    ended(drawing, [row[0] for row in rows], source, path)


def look(i):
    """The mark and the colour of a series: no two have both, and the first nine not even one."""
    colours = [OURS, NATIVE] + OTHERS
    return MARKS[(i + i // len(colours)) % len(MARKS)], colours[i % len(colours)]


def ratio_ticks(low, high):
    """What the axis names between two ratios: as many as do not run into each other."""
    steps = (1,) if high / low > 2000 else (1, 2, 5) if high / low > 10 else (1, 1.5, 2, 3, 5, 7)
    return [tick for power in range(-5, 5) for tick in (round(step * 10.0 ** power, 6) for step in steps)
            if low <= tick <= high]


def draw_ratios(rows, series, about, source, path):
    """rows: (label, a ratio or None for each of the series); the line is at 1."""
    drawing = began(len(rows))
    axes = drawing[2]
    axes.axvline(1, color=INK, linewidth=1)
    for i, name in enumerate(series):
        mark, colour = look(i)
        points = [(row[i + 1], place) for place, row in zip(range(len(rows))[::-1], rows) if row[i + 1]]
        axes.scatter([x for x, _ in points], [y for _, y in points], s=45, marker=mark, label=name,
                     color=colour, zorder=3)
    shown = [value for row in rows for value in row[1:] if value]
    low, high = min(shown + [0.9]) / 1.2, max(shown + [1.1]) * 1.2
    ticks = ratio_ticks(low, high)
    axes.set_xlim(low, high)
    axes.set_xticks(ticks, [f"{tick:g}x" for tick in ticks])
    axes.set_xlabel(about)
    ended(drawing, [row[0] for row in rows], source, path)
