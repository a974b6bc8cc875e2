"""The chart of measured times: native and with Allograft, on one logarithmic axis, as SVG for light and dark pages."""

import hashlib
import re

NATIVE, OURS, INK, FAINT, PAPER = "#8c6d1f", "#1a7f5a", "#1f2328", "#d1d9e0", "#ffffff"
DARK = {NATIVE: "#e3b341", OURS: "#3fb98a", INK: "#e6edf3", FAINT: "#3d444d", PAPER: "#0d1117"}


def made_of(rows):
    """What the chart says of its source: a checksum of the figures and of this file."""
    with open(__file__, "rb") as file:
        source = file.read()
    return "figures " + hashlib.sha256(repr(rows).encode() + source).hexdigest()


def both_ways(svg):
    """Gives the chart a second set of colours, for pages that are dark."""
    rules = "".join(f'[style*="{kind}: {light}"] {{ {kind}: {dark} !important }}\n'
                    for light, dark in DARK.items() for kind in ("fill", "stroke"))
    style = f"<style>@media (prefers-color-scheme: dark) {{\n{rules}}}</style>\n"
    return re.sub(r"(<svg [^>]*>\n)", lambda match: match[1] + style, svg, count=1)


def plot(rows, path):
    import matplotlib
    matplotlib.use("svg")
    from matplotlib import pyplot

    with pyplot.rc_context({"svg.fonttype": "none", "svg.hashsalt": "allograft", "font.size": 11,
                            "font.family": ["sans-serif"], "text.color": INK, "axes.labelcolor": INK,
                            "xtick.color": INK, "ytick.color": INK}):
        figure, axes = pyplot.subplots(figsize=(8.6, 3.7))
        places = range(len(rows))[::-1]
        micros = [[float(cell.split()[0].replace(",", "")) for cell in row[1:3]] for row in rows]
        for place, (label, native, ours, gain), (before, after) in zip(places, rows, micros):
            axes.plot([after, before], [place, place], color=FAINT, linewidth=3, zorder=1)
            axes.annotate(native, (before, place), (9, 0), textcoords="offset points", va="center", color=NATIVE)
            axes.annotate(ours, (after, place), (-9, 0), textcoords="offset points", va="center", ha="right", color=OURS)
            axes.annotate(gain, ((before * after) ** .5, place), (0, 5), textcoords="offset points", ha="center")
        axes.scatter([before for before, _ in micros], places, s=70, color=NATIVE, zorder=2, label="native")
        axes.scatter([after for _, after in micros], places, s=70, color=OURS, zorder=2, label="with Allograft")
        axes.set_xscale("log")
        axes.set_xlim(0.09, 20000)
        axes.set_ylim(-0.6, len(rows) - 0.3)
        axes.set_yticks(list(places), [row[0] for row in rows])
        axes.set_xticks([1, 10, 100, 1000, 10000], ["1 us", "10 us", "100 us", "1 ms", "10 ms"])
        axes.tick_params(length=0, pad=8)
        axes.minorticks_off()
        axes.set_xlabel("time of one iteration on an NVIDIA H200 (logarithmic)")
        axes.grid(axis="x", color=FAINT, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[:].set_visible(False)
        axes.set_facecolor(PAPER)
        figure.legend(loc="upper right", ncols=2, frameon=False)
        figure.set_facecolor(PAPER)
        figure.tight_layout(rect=(0, 0, 1, 0.93))
        figure.savefig(path, metadata={"Date": None, "Creator": None, "Title": "Times on an NVIDIA H200, native and with "
                                       "Allograft", "Description": made_of(rows)})
        pyplot.close(figure)


def draw(rows, path):
    plot(rows, path)
    with open(path, encoding="utf-8") as file:
        svg = file.read()
    with open(path, "w", encoding="utf-8") as file:
        file.write(both_ways(svg))
