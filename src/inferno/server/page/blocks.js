// Splits Markdown into blocks, line by line. Nothing here touches the page.

const FENCE = /^ {0,3}(`{3,}|~{3,})([^`]*)$/;
// `s`: else a line with one of JavaScript's own ends of lines is tried once for each of its spaces.
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/s;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])(?:[ \t]+(.*)|)$/s;
const DELIMITER = /^:?-+:?$/;
const MAX_DEPTH = 8;

// Each block has a `kind`, `from`, the number of its first line, and what its kind needs.
export function blocksOf(lines, depth = 0) {
    const blocks = [];
    for (let at = 0; at < lines.length; ) {
        if (isBlank(lines[at])) {
            at += 1;
            continue;
        }
        const [block, next] = readBlock(lines, at, depth);
        blocks.push({ ...block, from: at });
        at = next;
    }
    return blocks;
}

function readBlock(lines, at, depth) {
    const line = lines[at];
    const heading = HEADING.exec(line);
    if (heading) {
        const text = (heading[2] ?? "").replace(/(^|\s)#+\s*$/, "").trim();
        return [{ kind: "heading", level: heading[1].length, text }, at + 1];
    }
    if (FENCE.test(line)) return readCode(lines, at);
    if (RULE.test(line)) return [{ kind: "rule" }, at + 1];
    if (isTable(lines, at)) return readTable(lines, at);
    if (depth < MAX_DEPTH && QUOTE.test(line)) return readQuote(lines, at, depth);
    if (depth < MAX_DEPTH && itemOf(line)) return readList(lines, at, depth);
    return readParagraph(lines, at);
}

function readCode(lines, at) {
    const [, fence, info] = FENCE.exec(lines[at]);
    const language = info.trim().split(/\s/)[0].slice(0, 40);
    const indent = lines[at].indexOf(fence);
    const code = [];
    for (let next = at + 1; next < lines.length; next += 1) {
        const line = lines[next].trim();
        if (line.startsWith(fence) && line === fence[0].repeat(line.length)) {
            return [{ kind: "code", language, text: code.join("\n") }, next + 1];
        }
        code.push(dedent(lines[next], indent));
    }
    return [{ kind: "code", language, text: code.join("\n") }, lines.length];
}

function readQuote(lines, at, depth) {
    const quoted = [];
    let next = at;
    for (; next < lines.length && QUOTE.test(lines[next]); next += 1) {
        quoted.push(lines[next].replace(QUOTE, ""));
    }
    return [{ kind: "quote", blocks: blocksOf(quoted, depth + 1) }, next];
}

function isTable(lines, at) {
    if (!lines[at].includes("|") || at + 1 === lines.length) return false;
    const delimiters = cellsOf(lines[at + 1]);
    return (
        delimiters.length > 0 &&
        delimiters.length === cellsOf(lines[at]).length &&
        delimiters.every((cell) => DELIMITER.test(cell))
    );
}

function readTable(lines, at) {
    const head = cellsOf(lines[at]);
    const aligns = cellsOf(lines[at + 1]).map(alignOf);
    const rows = [];
    let next = at + 2;
    for (; next < lines.length && lines[next].includes("|"); next += 1) {
        const cells = cellsOf(lines[next]);
        rows.push(head.map((_, column) => cells[column] ?? ""));
    }
    return [{ kind: "table", head, aligns, rows }, next];
}

function cellsOf(line) {
    const cells = line.trim().replace(/\\\|/g, "\0").split("|");
    if (cells[0] === "") cells.shift();
    if (cells.at(-1) === "") cells.pop();
    return cells.map((cell) => cell.replaceAll("\0", "|").trim());
}

function alignOf(delimiter) {
    if (!delimiter.endsWith(":")) return "";
    return delimiter.startsWith(":") ? "center" : "right";
}

// Items may be indented less than CommonMark asks for, as models do below "1." and "10.".
function readList(lines, at, depth) {
    const first = itemOf(lines[at]);
    const items = [];
    let next = at;
    while (next < lines.length) {
        const item = itemOf(lines[next]);
        if (!item || item.isOrdered !== first.isOrdered || RULE.test(lines[next])) break;
        const end = endOfItem(lines, next, item);
        const inner = lines.slice(next + 1, end).map((line) => dedent(line, item.offset));
        items.push(blocksOf([item.text, ...inner], depth + 1));
        next = end;
    }
    const { isOrdered, start } = first;
    return [{ kind: "list", isOrdered, start, items }, next];
}

function endOfItem(lines, at, item) {
    let next = at + 1;
    let isFenced = FENCE.test(item.text);
    for (; next < lines.length; next += 1) {
        const line = lines[next];
        if (isBlank(line)) continue;
        const indent = line.search(/\S/);
        if (FENCE.test(line.trim()) && indent > item.indent) isFenced = !isFenced;
        if (indent >= item.offset || (isFenced && indent > item.indent)) continue;
        if (itemOf(line) ? indent > item.indent + 1 : isLazy(lines, next)) continue;
        break;
    }
    return next;
}

// A line that goes on with the paragraph above it, though it isn't indented.
function isLazy(lines, at) {
    return !isBlank(lines[at - 1]) && !beginsBlock(lines, at) && !/^\s*[`~]{3}/.test(lines[at - 1]);
}

function itemOf(line) {
    const match = ITEM.exec(line);
    if (!match) return null;
    const [, space, marker, text = ""] = match;
    const isOrdered = marker.length > 1;
    return {
        indent: space.length,
        offset: space.length + marker.length + 1,
        isOrdered,
        start: isOrdered ? parseInt(marker, 10) : 1,
        text,
    };
}

function readParagraph(lines, at) {
    let next = at + 1;
    while (next < lines.length && !isBlank(lines[next]) && !beginsBlock(lines, next)) next += 1;
    const text = lines.slice(at, next).map((line) => line.trim()).join("\n");
    return [{ kind: "paragraph", text }, next];
}

// Whether a line ends the paragraph above it; a number other than 1 may be one of a sentence.
function beginsBlock(lines, at) {
    const line = lines[at];
    const item = itemOf(line);
    return (
        HEADING.test(line) || FENCE.test(line) || RULE.test(line) || QUOTE.test(line) ||
        (item !== null && item.text !== "" && item.start === 1) ||
        isTable(lines, at)
    );
}

function isBlank(line) {
    return line.trim() === "";
}

function dedent(line, most) {
    const indent = line.search(/\S|$/);
    return line.slice(Math.min(indent, most));
}
