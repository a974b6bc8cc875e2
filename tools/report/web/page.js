/* page.js: what the report's page gains where scripts run. Tables sort, memory over time becomes a chart that zooms,
 * and stacks become flame graphs. All of it works by keyboard; without it, the page shows the same in tables.
 * Texts of programs only ever become text nodes. */
'use strict';
(() => {
    const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
    const SCALE = {
        B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40, PiB: 2 ** 50, ns: 1, us: 1e3, ms: 1e6, s: 1e9,
    };

    function make(tag, properties, ...children) {
        const element = Object.assign(document.createElement(tag), properties);

        element.append(...children);
        return element;
    }

    function bytes(value) {
        let unit = 0;

        for (; value >= 1024 && unit < UNITS.length - 1; unit++)
            value /= 1024;
        return (unit ? value.toFixed(value < 10 ? 2 : 1) : String(value)) + ' ' + UNITS[unit];
    }

    /* A time in nanoseconds. */
    function duration(value) {
        const [factor, unit] = value >= 1e9 ? [1e9, 's'] : value >= 1e6 ? [1e6, 'ms'] : value >= 1e3 ? [1e3, 'us'] : [1, 'ns'];

        return (factor > 1 ? (value / factor).toFixed(2) : String(value)) + ' ' + unit;
    }

    const IN_UNIT = {bytes, ns: duration, count: value => value.toLocaleString('en')};

    /* Seconds; `step` is how far apart such times stand. */
    function seconds(value, step) {
        const [factor, unit] = step >= 1 || !step ? [1, 's'] : step >= 1e-3 ? [1e3, 'ms'] : [1e6, 'us'];
        const isWhole = scaled => Math.abs(scaled - Math.round(scaled)) < 1e-6 * Math.max(1, scaled);
        let digits = 0;

        while (digits < 3 && !isWhole((step || 0.001) * factor * 10 ** digits)) /* 2.5 ms is not 3 */
            digits++;
        return (value * factor).toFixed(digits) + ' ' + unit;
    }

    /* Bytes of an axis, whose ticks are `step` apart: in the unit in which those differ. */
    function level(value, step) {
        let unit = 0, digits = 0;

        for (; value >= 1024 && step >= 128 && unit < UNITS.length - 1; unit++) {
            value /= 1024;
            step /= 1024;
        }
        while (digits < 3 && step * 10 ** digits % 1)
            digits++;
        return value.toLocaleString('en', {minimumFractionDigits: digits, maximumFractionDigits: digits}) + ' ' + UNITS[unit];
    }

    /* A time by itself, in the unit that it is large in. */
    function instant(value) {
        const [factor, unit, digits] = value >= 1 ? [1, 's', 5] : value >= 1e-3 ? [1e3, 'ms', 2] : [1e6, 'us', 0];

        return (value * factor).toFixed(digits) + ' ' + unit;
    }

    /* ---- the address ---- */

    /* What the reader looks for stands behind the # of the address, so that it can be sent to others: "find", what is
     * searched for; "own", whether frames of libraries are hidden; "at", the card. A card alone is an ordinary #name. */
    let address;

    function readAddress() {
        const text = location.hash.slice(1);

        address = new URLSearchParams(text.includes('=') ? text : text && {at: decodeURIComponent(text)});
    }

    function keep(name, value) {
        if (value)
            address.set(name, value);
        else
            address.delete(name);
        history.replaceState(null, '', '#' + (String(address) === 'at=' + address.get('at') ? address.get('at') : address));
    }

    readAddress();

    /* What the address tells what to show; each has look(). Charts of one page look for the same, so that those of
     * several processes compare. */
    const followers = [];

    function lookFor() {
        followers.forEach(one => one.look());
    }

    const hidesLibraries = () => address.get('own') === '1';

    /* The same function has the same colour everywhere. */
    function hue(title) {
        let sum = 0;

        for (let i = 0; i < title.length; i++)
            sum = (sum * 31 + title.charCodeAt(i)) >>> 0;
        return sum % 6;
    }

    const colour = name => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();

    /* ---- tables ---- */

    /* What a cell sorts by: a number with its unit, else text. Cells without a number come last. */
    function key(cell) {
        const text = cell ? cell.textContent.trim() : '';
        const match = /^([\d,]+(?:\.\d+)?(?:e[+-]?\d+)?)\s*(\S+)?/.exec(text);

        if (!match)
            return cell && cell.classList.contains('num') ? -1 : text.toLowerCase();
        return Number(match[1].replace(/,/g, '')) * (SCALE[match[2]] || 1);
    }

    function compare(a, b) {
        if (typeof a === typeof b)
            return typeof a === 'number' ? a - b : a.localeCompare(b, 'en', {numeric: true}); /* rank 2, rank 10 */
        return typeof a === 'number' ? 1 : -1;
    }

    /* What a caption says of the order is said anew. */
    function tellOrder(caption, by, down) {
        if (caption && / first$/.test(caption.textContent))
            caption.textContent = caption.textContent.split(',')[0] + ', by ' + by + ', ' +
                (down ? 'largest' : 'smallest') + ' first';
    }

    function sortBy(table, head, column, down = head.getAttribute('aria-sort') !== 'descending') {
        const rows = [...table.tBodies[0].rows].map(row => [key(row.cells[column]), row]);

        for (const other of table.tHead.rows[0].cells)
            other.removeAttribute('aria-sort');
        head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
        rows.sort((a, b) => (down ? compare(b[0], a[0]) : compare(a[0], b[0])));
        table.tBodies[0].append(...rows.map(row => row[1]));
        tellOrder(table.caption, head.textContent, down);
    }

    function makeSortable(table) {
        if (!table.tHead || !table.tBodies[0] || table.tBodies[0].rows.length < 2)
            return;
        [...table.tHead.rows[0].cells].forEach((head, column) => {
            if (head.tagName !== 'TH' || !head.textContent)
                return;
            const button = make('button', {type: 'button', className: 'sort', title: 'Sort'}, ...head.childNodes);

            button.addEventListener('click', () => sortBy(table, head, column));
            head.append(button);
        });
    }

    /* ---- memory over time ---- */

    function shade(name) {
        return colour(name) + '33';
    }

    const gap = at => (at.length > 1 ? at[1] - at[0] : at[0]);

    function axes(format, width) {
        const base = {stroke: colour('soft'), grid: {stroke: colour('line'), width: 1}, ticks: {stroke: colour('line')}};

        return [
            {...base, values: (plot, at) => at.map(value => seconds(value, gap(at))), space: 70},
            {...base, values: (plot, at) => at.map(value => format(value, gap(at))), size: width},
        ];
    }

    /* Powers of two, so that ticks are whole in KiB, MiB and GiB. */
    const TICKS = Array.from({length: 60}, (unused, power) => 2 ** power);

    function options(box, title, series, height, sync, format) {
        const chart = {
            width: box.clientWidth, height, series: [{label: 'time'}, ...series],
            scales: {x: {time: false}, y: {range: (plot, low, high) => sync.vertical(plot, high)}},
            padding: [null, 24, null, null], legend: {show: height > 150, live: false},
            axes: axes(format, (plot, values) => sync.axis(plot, values || [])),
            cursor: {sync: {key: sync.key, setSeries: false}, drag: {x: true, y: false}, points: {size: 7}},
            hooks: {
                setScale: [(plot, which) => which === 'x' && sync.follow(plot)],
                setCursor: [plot => sync.tell(plot)],
                draw: [plot => sync.align(plot)],
            },
        };

        chart.axes[1].incrs = TICKS;
        if (height <= 150) {
            chart.axes[0].show = false;
            chart.axes[1].space = 16;
            chart.padding = [8, 24, 4, null];
        }
        return chart;
    }

    function lineSeries(data) {
        return data.series.map((one, i) => ({
            label: one.name, stroke: colour(one.colour), fill: i ? undefined : shade(one.colour), width: i ? 1.5 : 1,
            paths: uPlot.paths.stepped({align: 1}), points: {show: false},
        }));
    }

    function trackSeries(track) {
        return [{
            label: track.name, stroke: colour(track.colour), fill: shade(track.colour), width: 1,
            paths: uPlot.paths.stepped({align: 1}), points: {show: false},
        }];
    }

    class Timeline {
        constructor(box, data) {
            Object.assign(this, {box, data, plots: [], key: data.id, busy: false});
            this.full = [data.time[0], data.time[data.time.length - 1]];
            this.saying = make('p', {className: 'saying'});
            this.saying.setAttribute('aria-live', 'polite');
            box.tabIndex = 0;
            box.setAttribute('role', 'group');
            box.setAttribute('aria-label', 'Memory over time. Arrows move, plus and minus zoom, 0 shows all.');
            box.addEventListener('keydown', event => this.press(event));
            this.draw();
            followers.push(this);
            new ResizeObserver(() => this.resize()).observe(box);
            matchMedia('(prefers-color-scheme:dark)').addEventListener('change', () => this.draw());
        }

        draw() {
            const {box, data} = this;

            this.plots.forEach(plot => plot.destroy());
            box.replaceChildren(this.saying);
            this.plots = [new uPlot(options(box, 'memory', lineSeries(data), 280, this, level),
                                    [data.time, ...data.series.map(one => one.values)], box)];
            for (const track of data.tracks) {
                box.append(make('p', {className: 'track'}, track.name));
                this.plots.push(new uPlot(options(box, track.name, trackSeries(track), 60, this, String),
                                          [data.parts, track.values], box));
            }
            this.blocks = data.largest.blocks.length ? new Blocks(box, data.largest, this) : null;
            this.plots.forEach(plot => plot.setScale('x', {min: this.full[0], max: this.full[1]}));
            this.say('Drag, or press + and -, to zoom; arrows move; double-click or 0 shows all.');
        }

        look() {
            if (this.blocks)
                this.blocks.showStack();
        }

        resize() {
            const width = this.box.clientWidth;

            if (width && width !== this.plots[0].width)
                this.plots.forEach(plot => plot.setSize({width, height: plot.height}));
        }

        say(text) {
            this.saying.textContent = text;
        }

        /* The plots below one another begin at one place, which the labels of the first one need. */
        axis(plot, values) {
            if (plot === this.plots[0] || !this.plots.length)
                this.axisWidth = Math.max(this.box.clientWidth < 500 ? 70 : 76,
                                          18 + 7 * Math.max(...values.map(text => text.length)));
            return this.axisWidth;
        }

        align(plot) {
            if (plot === this.plots[0] && this.blocks)
                this.blocks.draw();
            if (plot !== this.plots[0] || this.alignedAt === this.axisWidth)
                return;
            this.alignedAt = this.axisWidth;
            this.plots.slice(1).forEach(other => other.redraw(false, true));
        }

        /* Of all the time memory is shown from 0, of a part in its own range, with the level that the part begins at. */
        vertical(plot, high) {
            const {min, max} = plot.scales.x, [begin, end] = this.full;

            if (plot !== this.plots[0] || min == null)
                return [0, high > 0 ? high * 1.05 : 1];
            const [least, most] = this.range(plot, min, max), margin = (most - least || most || 1) / 20;

            return min <= begin && max >= end ? [0, most * 1.05 || 1] : [Math.max(0, least - margin), most + margin];
        }

        fit(plot) {
            const [min, max] = this.vertical(plot, 0);

            if (plot.scales.y.min !== min || plot.scales.y.max !== max)
                plot.setScale('y', {min, max});
        }

        range(plot, min, max) {
            const {time} = this.data, rows = plot.data.slice(1).filter((unused, i) => plot.series[i + 1].show);
            let least = Infinity, most = 0, at = Math.max(0, time.findIndex(value => value > min) - 1);

            for (; at < time.length && time[at] <= max; at++)
                for (const row of rows) {
                    least = Math.min(least, row[at]);
                    most = Math.max(most, row[at]);
                }
            return least <= most ? [least, most] : [0, 1];
        }

        follow(from) {
            const {min, max} = from.scales.x;

            if (from === this.plots[0]) /* uPlot sets both scales at once, and forgets what is set meanwhile */
                queueMicrotask(() => this.fit(from));
            if (this.busy || min == null)
                return;
            this.busy = true;
            for (const plot of this.plots)
                if (plot !== from)
                    plot.setScale('x', {min, max});
            this.busy = false;
        }

        tell(plot) {
            const at = plot.cursor.idx;

            if (plot === this.plots[0] && at != null)
                this.sayAt(at);
        }

        sayAt(at) {
            this.at = at;
            this.say(instant(this.data.time[at]) + ': ' +
                     this.data.series.map(one => one.name + ' ' + bytes(one.values[at])).join(', '));
        }

        zoom(factor) {
            const {min, max} = this.plots[0].scales.x, time = this.data.time[this.at] ?? (min + max) / 2;
            const middle = Math.min(Math.max(time, min), max);

            this.show(middle - (middle - min) * factor, middle + (max - middle) * factor);
        }

        show(min, max) {
            min = Math.max(min, this.full[0]);
            max = Math.min(max, this.full[1]);
            if (max > min)
                this.plots[0].setScale('x', {min, max});
        }

        move(step) {
            const plot = this.plots[0], {min, max} = plot.scales.x, {time, series} = this.data;
            const first = time.findIndex(value => value >= min);
            const at = Math.min(Math.max(this.at == null ? first : this.at + step, 0), time.length - 1);

            if (time[at] < min || time[at] > max)
                this.show(time[at] - (max - min) / 2, time[at] + (max - min) / 2);
            plot.setCursor({left: plot.valToPos(time[at], 'x'), top: plot.valToPos(series[0].values[at], 'y')});
            this.sayAt(at);
        }

        press(event) {
            const steps = {ArrowLeft: -1, ArrowRight: 1, PageUp: -50, PageDown: 50, Home: -1e9, End: 1e9};

            if (event.ctrlKey || event.altKey || event.metaKey)
                return;
            if (event.key in steps)
                this.move(steps[event.key]);
            else if (event.key === '+' || event.key === '=')
                this.zoom(0.5);
            else if (event.key === '-')
                this.zoom(2);
            else if (event.key === '0' || event.key === 'Escape')
                this.show(...this.full);
            else
                return;
            event.preventDefault();
        }
    }

    /* ---- the largest blocks ---- */

    /* The stack of a block, innermost function first. Of data: frames, each [1 if of a library, name, place, and those
     * of what it was inlined into], and stacks of their numbers; -1: there are more. */
    class Stacks {
        constructor(frames, stacks) {
            this.frames = frames.map(([isLibrary, ...texts]) => ({
                isLibrary, names: texts.flatMap((name, i) => (i % 2 ? [] : [[name, texts[i + 1]]])),
            }));
            this.stacks = stacks;
            this.box = make('ol', {className: 'stack-of', tabIndex: 0});
            this.box.setAttribute('aria-label', 'Stack of the block, innermost function first');
            this.box.addEventListener('keydown', event => event.stopPropagation()); /* arrows scroll */
        }

        /* Of a block, or of none. */
        show(block) {
            const all = block && this.stacks[block.stack] || [], frames = all.filter(at => at >= 0).map(at => this.frames[at]);
            const shown = frames.filter(frame => !(frame.isLibrary && hidesLibraries()));
            const hidden = frames.length - shown.length;

            this.box.replaceChildren(
                ...shown.flatMap(frame => frame.names.map(([name, place]) => make('li', {}, name + ' ', make('small', {}, place)))),
                ...(hidden ? [this.note(hidden + (hidden > 1 ? ' frames of libraries are hidden' : ' frame of a library is hidden'))] : []),
                ...(all.includes(-1) ? [this.note('further frames were not recorded')] : []),
                ...(all.length ? [] : [this.note(block ? 'not known' : 'The stack of a block stands here.')]));
            this.box.scrollTop = 0;
        }

        note(text) {
            return make('li', {className: 'soft'}, text);
        }
    }

    /* Below memory over time, with its axes: each block lies on those allocated before it, and sinks as they go. */
    class Blocks {
        constructor(box, data, timeline) {
            Object.assign(this, {box, timeline, sites: data.sites, at: -1, isHeld: false});
            this.blocks = data.blocks.map(([from, to, size, site, stack]) => ({
                from, to: to ?? Infinity, size, site, stack, steps: [],
            }));
            this.pile();
            this.saying = make('p', {className: 'saying block-saying'});
            this.saying.setAttribute('aria-live', 'polite');
            this.canvas = make('canvas', {className: 'blocks', tabIndex: 0});
            this.canvas.setAttribute('role', 'img');
            this.canvas.setAttribute('aria-label', 'The largest blocks over time. Arrows go from block to block.');
            this.canvas.addEventListener('mousemove', event => this.point(event));
            this.canvas.addEventListener('keydown', event => this.press(event));
            this.canvas.addEventListener('click', event => this.hold(event));
            this.canvas.addEventListener('focus', () => this.at < 0 && this.choose(0));
            this.stacks = data.stacks && new Stacks(data.frames, data.stacks);
            const few = data.of > this.blocks.length ? 'the largest ' + this.blocks.length.toLocaleString('en') + ' of ' : '';

            box.append(make('p', {className: 'track'}, 'blocks: ' + few + data.of.toLocaleString('en')), this.canvas,
                       this.saying, ...(this.stacks ? [this.stacks.box] : []));
            this.say('The mouse over a block, or arrows, show who allocated it' + (this.stacks ? '; a click keeps it.' : '.'));
            this.showStack();
        }

        /* Where each block lies from which time on. */
        pile() {
            const events = this.blocks.flatMap(block => [[block.from, 1, block], [block.to, 0, block]]);
            const live = [];

            events.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
            let top = 0;

            for (const [time, isAlloc, block] of events) {
                if (time === Infinity)
                    break;
                if (isAlloc) {
                    block.steps.push([time, top]);
                    live.push(block);
                    top += block.size;
                    continue;
                }
                const first = live.indexOf(block);

                live.splice(first, 1);
                top -= block.size;
                for (const above of live.slice(first))
                    above.steps.push([time, above.steps[above.steps.length - 1][1] - block.size]);
            }
        }

        /* The scales of the chart above; the vertical one from 0 to the highest in sight. */
        scales() {
            const plot = this.timeline.plots[0], {min, max} = plot.scales.x, ratio = devicePixelRatio;
            const left = plot.bbox.left / ratio, width = plot.bbox.width / ratio, height = this.canvas.clientHeight;
            let most = 1;

            for (const block of this.blocks)
                for (let i = 0; i < block.steps.length; i++)
                    if (block.steps[i][0] <= max && (i + 1 < block.steps.length ? block.steps[i + 1][0] : block.to) >= min)
                        most = Math.max(most, block.steps[i][1] + block.size);
            return {min, max, left, width, height, most};
        }

        draw() {
            const context = this.canvas.getContext('2d'), ratio = devicePixelRatio, scales = this.scales();

            if (scales.min == null || !scales.height)
                return;
            this.canvas.width = this.canvas.clientWidth * ratio;
            this.canvas.height = scales.height * ratio;
            context.scale(ratio, ratio);
            context.beginPath();
            context.rect(scales.left, 0, scales.width, scales.height);
            context.clip();
            this.blocks.forEach((block, i) => this.fill(context, block, scales, i === this.at));
            if (this.at >= 0)
                this.fill(context, this.blocks[this.at], scales, true);
        }

        fill(context, block, {min, max, left, width, height, most}, isChosen) {
            const x = time => left + width * (Math.min(Math.max(time, min), max) - min) / (max - min);
            const lines = block.steps.map(([time, low], i) => [
                x(time), x(i + 1 < block.steps.length ? block.steps[i + 1][0] : block.to),
                height * (1 - low / most), height * block.size / most]);

            context.fillStyle = colour('c' + (1 + hue(this.sites[block.site]) % 5));
            context.globalAlpha = isChosen ? 1 : 0.45 + block.size % 7 / 20;
            for (const [from, to, low, tall] of lines)
                if (to > from)
                    context.fillRect(from, low - tall, Math.max(to - from, 0.5), Math.max(tall - 0.5, 0.5));
            if (!isChosen)
                return;
            context.strokeStyle = colour('ink');
            for (const [from, to, low, tall] of lines)
                if (to > from)
                    context.strokeRect(from, low - tall, to - from, tall);
        }

        find(time, level) {
            return this.blocks.findIndex(block => {
                if (block.from > time || block.to <= time)
                    return false;
                const low = block.steps.reduce((kept, step) => (step[0] <= time ? step[1] : kept), 0);

                return low <= level && level < low + block.size;
            });
        }

        under(event) {
            const {min, max, left, width, height, most} = this.scales(), box = this.canvas.getBoundingClientRect();
            const time = min + (max - min) * (event.clientX - box.left - left) / width;

            return this.find(time, most * (1 - (event.clientY - box.top) / height));
        }

        point(event) {
            if (!this.isHeld)
                this.choose(this.under(event));
        }

        /* Until another click, or Escape: the mouse on its way to the stack passes other blocks. */
        hold(event) {
            const at = this.under(event);

            this.isHeld = at >= 0 && !(this.isHeld && at === this.at);
            this.choose(at);
        }

        choose(at) {
            if (at === this.at)
                return;
            this.at = at;
            this.draw();
            this.say(at < 0 ? '' : this.text(this.blocks[at]));
            this.showStack();
        }

        showStack() {
            if (this.stacks)
                this.stacks.show(this.blocks[this.at]);
        }

        text(block) {
            return bytes(block.size) + ', from ' + instant(block.from) +
                (block.to === Infinity ? ' on, not freed' : ' to ' + instant(block.to)) + '\n' + this.sites[block.site];
        }

        say(text) {
            this.saying.textContent = text;
        }

        press(event) {
            const steps = {ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9};

            if (event.key === 'Escape' && this.isHeld) {
                this.isHeld = false;
                event.preventDefault();
                event.stopPropagation();
                return;
            }
            if (event.ctrlKey || event.altKey || event.metaKey || !(event.key in steps))
                return;
            this.choose(Math.min(Math.max(this.at + steps[event.key], 0), this.blocks.length - 1));
            event.preventDefault();
            event.stopPropagation();
        }
    }

    /* ---- flame graphs ---- */

    /* Of a node of the data: [name, place, [value of each measure], children, 1 if it is of a library]. */
    function tree([title, place, sizes, children, isLibrary], parent = null, depth = 0) {
        const node = {title, place, sizes, parent, depth, isLibrary: !!isLibrary};

        node.below = children.map(child => tree(child, node, depth + 1));
        return node;
    }

    /* The same without frames of libraries: what they called stands below what called them. */
    function withoutLibraries(node, parent = null, depth = 0) {
        const own = {...node, sizes: [...node.sizes], parent, depth, below: []}, parts = new Map();
        const gather = from => from.below.forEach(child => {
            const name = child.title + '\n' + child.place;

            if (child.isLibrary)
                gather(child);
            else
                parts.set(name, [...(parts.get(name) || []), child]);
        });

        gather(node);
        own.below = [...parts.values()].map(same => withoutLibraries(joined(same), own, depth + 1));
        return own;
    }

    function joined(nodes) {
        return {...nodes[0], sizes: nodes[0].sizes.map((unused, i) => nodes.reduce((sum, node) => sum + node.sizes[i], 0)),
            below: nodes.flatMap(node => node.below)};
    }

    const hasLibraries = node => node.isLibrary || node.below.some(hasLibraries);

    class Flame {
        constructor(box, data) {
            Object.assign(this, {box, data, measure: 0});
            this.whole = tree(data.root);
            this.root = this.focus = this.whole;
            this.saying = make('p', {className: 'saying'});
            this.saying.setAttribute('aria-live', 'polite');
            this.graph = make('div', {className: 'flame'});
            this.graph.setAttribute('role', 'tree');
            this.graph.setAttribute('aria-label', 'Flame graph; arrows move, Enter shows a part, Escape all');
            this.graph.addEventListener('click', event => this.pick(event));
            this.graph.addEventListener('keydown', event => this.press(event));
            this.graph.addEventListener('focusin', event => this.tell(event.target.node));
            this.graph.addEventListener('mouseover', event => this.hover(event.target));
            box.append(this.buttons(), this.search(), this.graph, this.saying);
            followers.push(this);
            this.look();
            this.say('Click, or press Enter, to see a part; Escape or the first line shows all.');
        }

        search() {
            const row = make('div', {className: 'choice search'});

            this.input = make('input', {type: 'search', placeholder: 'Search functions and files'});
            this.input.setAttribute('aria-label', 'Search functions and files of the flame graphs');
            this.input.addEventListener('input', () => (keep('find', this.input.value.trim()), lookFor()));
            this.input.addEventListener('keydown', event => event.key === 'Enter' && this.wander(this.hit(), true));
            this.hide = make('button', {type: 'button'}, 'Hide library frames');
            this.hide.addEventListener('click', () => (keep('own', this.isOwn ? '' : '1'), lookFor()));
            this.found = make('span', {className: 'note'});
            this.found.setAttribute('aria-live', 'polite');
            row.append(this.input, ...(hasLibraries(this.whole) ? [this.hide] : []), this.found);
            return row;
        }

        /* Draws what the address says. */
        look() {
            const find = address.get('find') || '', isOwn = hidesLibraries();

            if (isOwn !== !!this.isOwn)
                this.root = this.focus = isOwn ? withoutLibraries(this.whole) : this.whole;
            Object.assign(this, {find: find.toLowerCase(), isOwn});
            this.hide.setAttribute('aria-pressed', String(isOwn));
            if (this.input.value.trim() !== find)
                this.input.value = find;
            this.draw();
        }

        isHit(node) {
            return !!this.find && (node.title + ' ' + node.place).toLowerCase().includes(this.find);
        }

        hit() {
            return this.shown.find(block => this.isHit(block.node));
        }

        /* Of functions within one another, the outermost counts. */
        foundIn(node) {
            return this.isHit(node) ? this.size(node) : node.below.reduce((sum, child) => sum + this.foundIn(child), 0);
        }

        tellFound() {
            const size = this.find && this.foundIn(this.root);

            this.found.textContent = !this.find ? '' : !size ? 'no match'
                : IN_UNIT[this.data.units[this.measure]](size) + ', ' + this.share(size) + ' in all matches';
        }

        buttons() {
            const group = make('div', {className: 'choice'});

            group.setAttribute('role', 'group');
            group.setAttribute('aria-label', 'What the widths show');
            this.data.measures.forEach((name, i) => {
                const button = make('button', {type: 'button'}, name);

                button.disabled = !this.whole.sizes[i];
                button.addEventListener('click', () => this.choose(i));
                group.append(button);
            });
            this.choices = [...group.children];
            this.measure = Math.max(0, this.choices.findIndex(button => !button.disabled));
            return group;
        }

        choose(i) {
            this.measure = i;
            this.focus = this.root;
            this.draw();
            this.sortTable(this.data.measures[i]);
        }

        /* The table below shows first what the graph shows widest. */
        sortTable(measure) {
            const table = this.box.closest('.card').querySelector('table');
            const heads = table && table.tHead ? [...table.tHead.rows[0].cells] : [];
            const column = heads.findIndex(head => head.textContent === measure);

            if (column >= 0)
                sortBy(table, heads[column], column, true);
        }

        size(node) {
            return node.sizes[this.measure];
        }

        value(node) {
            return IN_UNIT[this.data.units[this.measure]](this.size(node));
        }

        share(size) {
            const whole = this.size(this.root);

            return (whole ? 100 * size / whole : 0).toFixed(1) + ' %';
        }

        name(node) {
            return node.title + (node.place ? ' (' + node.place + ')' : '');
        }

        text(node) {
            return this.name(node) + ': ' + this.value(node) + ', ' + this.share(this.size(node));
        }

        /* With who called it, as far as functions go. */
        stack(node) {
            const lines = [this.text(node)];

            for (let caller = node.parent; caller && caller.depth > 1; caller = caller.parent)
                lines.push('from ' + this.name(caller));
            return lines.join('\n');
        }

        say(text) {
            this.saying.textContent = text;
        }

        tell(node) {
            if (node)
                this.say(this.text(node));
        }

        hover(block) {
            this.tell(block.node);
            if (block.node)
                block.title = this.stack(block.node);
        }

        /* One line for each depth, of blocks that are as wide as their share of what is in focus. */
        draw(active) {
            const lines = [], path = [];

            for (let node = this.focus; node; node = node.parent)
                path.unshift(node);
            this.choices.forEach((button, i) => button.setAttribute('aria-pressed', String(i === this.measure)));
            this.shown = [];
            this.size(this.focus) && path.forEach(node => this.place(lines, node, 0, 1));
            this.size(this.focus) && this.below(lines, this.focus, 0, 1);
            this.graph.classList.toggle('finding', !!this.find);
            this.tellFound();
            this.graph.replaceChildren(...lines.map(blocks => make('div', {className: 'level'}, ...blocks)));
            this.wander((active && active.block) || this.shown[0], !!active);
        }

        below(lines, node, left, width) {
            const whole = this.size(node);
            const children = node.below.filter(child => this.size(child)).sort((a, b) => this.size(b) - this.size(a));

            for (const child of children) {
                const part = width * this.size(child) / whole;

                if (part < 0.001)
                    break;
                this.place(lines, child, left, part);
                this.below(lines, child, left, part);
                left += part;
            }
        }

        place(lines, node, left, width) {
            const block = make('div', {className: 'frame', tabIndex: -1, node}, node.title);

            block.setAttribute('role', 'treeitem');
            block.setAttribute('aria-level', String(node.depth + 1));
            block.setAttribute('aria-label', this.text(node));
            block.style.left = 100 * left + '%';
            block.style.width = 100 * width + '%';
            block.dataset.hue = node === this.focus || node.depth < this.focus.depth ? 'base' : hue(node.title);
            block.classList.toggle('hit', this.isHit(node));
            node.block = block;
            (lines[node.depth] = lines[node.depth] || []).push(block);
            this.shown.push(block);
        }

        zoomTo(node) {
            this.focus = node;
            this.draw(node);
        }

        pick(event) {
            if (event.target.node)
                this.zoomTo(event.target.node);
        }

        /* One block of the graph can be reached by Tab; arrows go on from there. */
        wander(block, focus) {
            for (const other of this.shown)
                other.tabIndex = -1;
            if (!block)
                return;
            block.tabIndex = 0;
            if (focus)
                block.focus();
        }

        neighbour(block, step) {
            const blocks = [...block.parentNode.children];

            return blocks[blocks.indexOf(block) + step];
        }

        press(event) {
            const block = event.target, node = block.node;
            const shown = other => other && this.shown.includes(other.block) && other.block;
            const next = {
                ArrowUp: () => shown(node.parent),
                ArrowDown: () => node.below.filter(child => shown(child))
                    .sort((a, b) => this.size(b) - this.size(a)).map(shown)[0],
                ArrowLeft: () => this.neighbour(block, -1),
                ArrowRight: () => this.neighbour(block, 1),
                Home: () => this.shown[0],
            };

            if (!node || event.ctrlKey || event.altKey || event.metaKey)
                return;
            if (event.key === 'Enter' || event.key === ' ')
                this.zoomTo(node);
            else if (event.key === 'Escape')
                this.zoomTo(this.root);
            else if (event.key in next)
                this.wander(next[event.key]() || block, true);
            else
                return;
            event.preventDefault();
        }
    }

    /* ---- the page ---- */

    /* Draws what the data beside `box` say; what stands for it without scripts then goes out of sight. */
    function draw(box, Kind) {
        const data = JSON.parse(box.querySelector('script').textContent), plain = box.querySelector('.plain');
        const drawing = make('div', {className: 'drawing'});

        box.prepend(drawing);
        try {
            box.drawn = new Kind(drawing, data);
            if (plain)
                plain.hidden = true;
        } catch (error) {
            drawing.remove();
            console.error(error);
        }
    }

    /* What lies in a card that is folded has no width yet. */
    function drawOnceOpen(box, Kind) {
        const card = box.closest('details');

        if (!card || card.open)
            draw(box, Kind);
        else
            card.addEventListener('toggle', () => draw(box, Kind), {once: true});
    }

    /* A card that is folded opens for who is led there. */
    function reveal(name) {
        const heading = name && document.getElementById(name), card = heading && heading.closest('details');

        if (card)
            card.open = true;
        if (heading)
            heading.scrollIntoView();
    }

    /* What is searched for stays in the address. */
    function goTo(event) {
        const link = event.target.closest('a');

        if (!link || event.ctrlKey || event.metaKey || event.shiftKey)
            return;
        event.preventDefault();
        keep('at', link.hash.slice(1));
        reveal(link.hash.slice(1));
    }

    document.querySelectorAll('table').forEach(makeSortable);
    document.querySelectorAll('.flames').forEach(box => drawOnceOpen(box, Flame));
    if (typeof uPlot === 'function')
        document.querySelectorAll('.timeline').forEach(box => drawOnceOpen(box, Timeline));
    document.querySelectorAll('nav').forEach(list => list.addEventListener('click', goTo));
    addEventListener('hashchange', () => (readAddress(), lookFor(), reveal(address.get('at'))));
    reveal(address.get('at'));
    document.documentElement.dataset.drawnMs = performance.now().toFixed(0);
})();
