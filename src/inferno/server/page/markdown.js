// Shows Markdown that is still being written: only what has changed is touched.

import { blocksOf } from "./blocks.js";
import { element, inline } from "./inline.js";

export class Markdown {
    #text = "";
    #settled = 0; // characters whose blocks are drawn for good
    #numSettled = 0; // those blocks

    constructor(root) {
        this.root = root;
    }

    // The whole text so far; `isOpen` while more is to come.
    show(given, isOpen = false) {
        const text = given.replace(/\r(?=\n|$)/g, "");
        if (!text.startsWith(this.#text)) this.#settled = this.#numSettled = 0;
        this.#text = text;
        const lines = text.slice(this.#settled).split("\n");
        const blocks = blocksOf(lines);
        const drawn = blocks.map((block, i) => draw(block, isOpen && i === blocks.length - 1));
        morphChildren(this.root, drawn, this.#numSettled);
        this.#settle(lines, blocks);
    }

    // What comes may still change the last line, and so join the last two blocks.
    #settle(lines, blocks) {
        if (blocks.length <= 2) return;
        for (const line of lines.slice(0, blocks.at(-2).from)) this.#settled += line.length + 1;
        this.#numSettled += blocks.length - 2;
    }
}

const DRAWN = {
    paragraph: (block, isOpen) => {
        const isHalfTable = isOpen && block.text.startsWith("|");
        return element("p", ...(isHalfTable ? [] : inline(block.text, isOpen)));
    },
    heading: (block, isOpen) =>
        element(`h${Math.min(6, block.level + 3)}`, ...inline(block.text, isOpen)),
    rule: () => element("hr"),
    quote: (block, isOpen) => element("blockquote", ...drawAll(block.blocks, isOpen)),
    code: drawCode,
    list: drawList,
    table: drawTable,
};

function draw(block, isOpen) {
    return DRAWN[block.kind](block, isOpen);
}

function drawAll(blocks, isOpen) {
    return blocks.map((block, i) => draw(block, isOpen && i === blocks.length - 1));
}

function drawCode({ language, text }) {
    const copy = element("button", "Copy");
    copy.type = "button";
    copy.className = "link";
    copy.dataset.do = "copy-code";
    const code = element("pre", element("code", text));
    code.tabIndex = 0; // so that keys can scroll it
    const figure = element("figure", element("figcaption", element("span", language), copy), code);
    figure.className = "code";
    return figure;
}

function drawList({ isOrdered, start, items }, isOpen) {
    const drawn = items.map((blocks, i) => drawItem(blocks, isOpen && i === items.length - 1));
    const list = element(isOrdered ? "ol" : "ul", ...drawn);
    if (isOrdered && start !== 1) list.start = start;
    return list;
}

function drawItem(blocks, isOpen) {
    const [first, ...others] = blocks;
    if (first?.kind !== "paragraph") return element("li", ...drawAll(blocks, isOpen));
    const words = inline(first.text, isOpen && !others.length);
    return element("li", ...words, ...drawAll(others, isOpen));
}

function drawTable({ head, aligns, rows }, isOpen) {
    const cell = (tag, isLast) => (text, column) => {
        const made = element(tag, ...inline(text, isLast));
        if (aligns[column]) made.className = aligns[column];
        return made;
    };
    const body = rows.map((row, i) =>
        element("tr", ...row.map(cell("td", isOpen && i === rows.length - 1))),
    );
    const top = element("thead", element("tr", ...head.map(cell("th", false))));
    const frame = element("div", element("table", top, element("tbody", ...body)));
    frame.className = "table";
    frame.tabIndex = 0;
    return frame;
}

// Makes the children from `first` on equal to the fresh ones, and keeps every node that can stay:
// what is selected, focused or scrolled remains so.
function morphChildren(parent, fresh, first = 0) {
    fresh.forEach((node, i) => {
        const old = parent.childNodes[first + i];
        if (old) morph(old, node);
        else parent.append(node);
    });
    while (parent.childNodes.length > first + fresh.length) parent.lastChild.remove();
}

function morph(old, node) {
    if (old.nodeType === Node.TEXT_NODE && node.nodeType === Node.TEXT_NODE) {
        if (old.data !== node.data) old.data = node.data;
    } else if (old.cloneNode().isEqualNode(node.cloneNode())) {
        morphChildren(old, [...node.childNodes]); // the same tag and attributes
    } else {
        old.replaceWith(node);
    }
}
