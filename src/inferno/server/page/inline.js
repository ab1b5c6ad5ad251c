// Markdown within a line: marks and links become nodes, all else is text.

const MARKS = ["***", "___", "**", "__", "~~", "*", "_"];
const TAGS = { "**": "strong", __: "strong", "~~": "s", "*": "em", _: "em" };
const PLAIN = /[^\\`*_~[!<]+/y;
const ESCAPED = /\\([!-/:-@[-`{-~\n])/y;
const TICKS = /`+/y;
const LINK = /!?\[([^[\]]{1,500})\]\(\s?<?(https?:\/\/[^\s<>()]{1,2000}(?:\([^\s<>()]{0,200}\)[^\s<>()]{0,200})?)>?(?:\s"[^"]{0,200}")?\)/y;
const ANGLED = /<(https?:\/\/[^\s<>]{1,2000})>/y;
const BARE = /https?:\/\/[^\s<>"'`]{1,2000}/g;
const UNFINISHED_LINK = /!?\[([^[\]]{1,500})\](?:\([^\s()]{0,2000})?$/;
const WORD = /[\p{L}\p{N}]/u;
const MAX_DEPTH = 6;

// `isOpen`: more is to come, so what has begun to be bold or code is drawn so at once.
export function inline(text, isOpen = false) {
    const shown = isOpen ? withoutTail(text.replace(UNFINISHED_LINK, "$1"), "*_~`") : text;
    return new Scanner(shown, isOpen, 0).nodes();
}

export function element(tag, ...children) {
    const made = document.createElement(tag);
    made.append(...children);
    return made;
}

class Scanner {
    #nodes = [];
    #plain = "";
    #at = 0;
    #unclosed = new Set(); // marks that are not closed anywhere from here on: keeps this linear

    constructor(text, isOpen, depth) {
        this.text = text;
        this.isOpen = isOpen;
        this.depth = depth;
    }

    nodes() {
        while (this.#at < this.text.length) {
            this.#read() || this.#literal(this.text[this.#at]);
        }
        this.#flush();
        return this.#nodes;
    }

    // Whether something was read at this place.
    #read() {
        const plain = this.#match(PLAIN);
        if (plain) return this.#literal(plain[0]);
        const escaped = this.#match(ESCAPED);
        if (escaped) {
            this.#at += 1;
            return this.#literal(escaped[1]);
        }
        return this.#code() || this.#link() || this.#marked();
    }

    #code() {
        const ticks = this.#match(TICKS)?.[0];
        if (!ticks) return false;
        const from = this.#at + ticks.length;
        let to = this.#closing(ticks, (at) => this.#runAt(at) === ticks.length);
        if (to < 0 && this.isOpen) to = this.text.length;
        if (to < 0) return this.#literal(ticks);
        const code = this.text.slice(from, to).replaceAll("\n", " ");
        const isPadded = code.startsWith(" ") && code.endsWith(" ") && /[^ ]/.test(code);
        return this.#push(element("code", isPadded ? code.slice(1, -1) : code), to + ticks.length);
    }

    #link() {
        const angled = this.#match(ANGLED);
        if (angled) return this.#push(linkTo(angled[1], [angled[1]]), this.#at + angled[0].length);
        const link = this.#match(LINK);
        if (!link) return false;
        return this.#push(linkTo(link[2], this.#inner(link[1])), this.#at + link[0].length);
    }

    #marked() {
        const mark = MARKS.find((each) => this.text.startsWith(each, this.#at));
        if (!mark || this.depth === MAX_DEPTH || !this.#opens(mark)) return false;
        let to = this.#closing(mark, (at) => this.#closes(mark, at));
        if (to < 0 && this.isOpen && mark === "**") to = this.text.length;
        if (to < 0) return mark.length === 3 ? false : this.#literal(mark);
        const inner = this.#inner(this.text.slice(this.#at + mark.length, to));
        const made =
            mark.length === 3
                ? element("em", element("strong", ...inner))
                : element(TAGS[mark], ...inner);
        return this.#push(made, to + mark.length);
    }

    #opens(mark) {
        const after = this.text[this.#at + mark.length];
        if (after === undefined || /\s/.test(after)) return false;
        return mark[0] !== "_" || !WORD.test(this.text[this.#at - 1] ?? "");
    }

    #closes(mark, at) {
        const after = this.text[at + mark.length] ?? "";
        if (/\s/.test(this.text[at - 1]) || this.text[at - 1] === "\\") return false;
        if (mark.length === 1 && (after === mark || this.text[at - 1] === mark)) return false;
        return mark[0] !== "_" || !WORD.test(after);
    }

    // Where the mark closes, or -1.
    #closing(mark, isEnd) {
        if (this.#unclosed.has(mark)) return -1;
        const from = this.#at + mark.length;
        for (let at = this.text.indexOf(mark, from); at >= 0; at = this.text.indexOf(mark, at + 1)) {
            if (at > from && isEnd(at)) return at;
        }
        this.#unclosed.add(mark);
        return -1;
    }

    // How many ticks begin here; 0 within a run.
    #runAt(at) {
        if (this.text[at - 1] === "`") return 0;
        TICKS.lastIndex = at;
        return TICKS.exec(this.text)[0].length;
    }

    #inner(text) {
        return new Scanner(text, false, this.depth + 1).nodes();
    }

    #match(pattern) {
        pattern.lastIndex = this.#at;
        return pattern.exec(this.text);
    }

    #literal(text) {
        this.#plain += text;
        this.#at += text.length;
        return true;
    }

    #push(node, next) {
        this.#flush();
        this.#nodes.push(node);
        this.#at = next;
        return true;
    }

    // Plain text, in which addresses become links.
    #flush() {
        let at = 0;
        for (const match of this.#plain.matchAll(BARE)) {
            const address = withoutTail(match[0], ".,;:!?)]}*_");
            this.#nodes.push(this.#plain.slice(at, match.index), linkTo(address, [address]));
            at = match.index + address.length;
        }
        this.#nodes.push(this.#plain.slice(at));
        this.#plain = "";
    }
}

// A link, or its words alone where the address is none for the web.
function linkTo(address, words) {
    if (!/^https?:/.test(address) || !URL.canParse(address)) return element("span", ...words);
    const link = element("a", ...words);
    link.href = address;
    link.rel = "noopener noreferrer nofollow";
    link.target = "_blank";
    return link;
}

function withoutTail(text, signs) {
    let end = text.length;
    while (end > 0 && signs.includes(text[end - 1])) end -= 1;
    return text.slice(0, end);
}
