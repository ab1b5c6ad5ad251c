// One question and its answer on the page.

import { asCode } from "./json.js";
import { Markdown } from "./markdown.js";

const ENDS = {
    length: "cut at the token limit",
    full: "cut where the context is full",
    limit: "cut at the server’s own limit",
    stopped: "stopped",
};
const TOO_SHORT = 0.004; // seconds: tokens that came at once have no rate

export class TurnView {
    #isAsked = false;

    constructor(parent, turn) {
        const content = document.getElementById("turn").content.cloneNode(true);
        this.root = content.querySelector(".turn");
        this.part = (name) => this.root.querySelector(name);
        this.showQuestion(turn.question);
        this.markdown = new Markdown(this.part(".text"));
        this.part(".reasoning summary").addEventListener("click", () => {
            this.#isAsked = true; // open or closed as the person wants it, from now on
        });
        parent.append(content);
        this.show(turn.answer, null);
    }

    showQuestion(question) {
        this.part(".asked").textContent = question;
    }

    // Whether the turn is no longer part of what is sent.
    showLeftOut(isLeftOut) {
        this.root.classList.toggle("left-out", isLeftOut);
        this.part(".note").hidden = !isLeftOut;
    }

    // `end` is null while more is to come.
    show(answer, end) {
        const isOpen = end === null;
        this.#showReasoning(answer, isOpen);
        const isCode = answer.isJson && answer.text !== "";
        this.markdown.show(isCode ? asCode(answer.text, isOpen) : answer.text, isOpen);
        this.part(".answer").setAttribute("aria-busy", isOpen);
        this.part(".waiting").hidden = !isOpen || answer.text !== "" || answer.reasoning !== "";
        this.part(".figures").textContent = isOpen ? "" : figures(answer);
        this.root.classList.toggle("done", !isOpen);
        this.part("[data-do=copy]").hidden = answer.text === "";
        const problem = this.part(".problem");
        problem.hidden = !answer.problem;
        if (problem.textContent !== answer.problem) problem.textContent = answer.problem;
        this.part("[data-do=leave-out]").hidden = !answer.problem || !answer.wantsRoom;
    }

    #showReasoning(answer, isOpen) {
        const details = this.part(".reasoning");
        const isThinking = isOpen && answer.text === "";
        details.hidden = answer.reasoning === "";
        details.querySelector("summary").textContent = isThinking ? "Thinking" : "Reasoning";
        const words = details.querySelector("p");
        if (words.textContent !== answer.reasoning) words.textContent = answer.reasoning;
        if (!this.#isAsked) details.open = isThinking;
    }

    remove() {
        this.root.remove();
    }

    restore(parent) {
        parent.append(this.root);
    }
}

export function newAnswer() {
    return {
        ...{ text: "", reasoning: "", tokens: 0, first: null, seconds: 0, end: null, problem: "" },
        ...{ wantsRoom: false, isJson: false },
    };
}

// "42 tokens · 81 tokens/s · first token 20 ms"
function figures({ tokens, first, seconds, end }) {
    const parts = [];
    if (tokens) parts.push(`${tokens} ${tokens === 1 ? "token" : "tokens"}`);
    const taken = seconds - first;
    if (tokens > 1 && taken > TOO_SHORT) parts.push(`${rate((tokens - 1) / taken)} tokens/s`);
    if (first !== null) parts.push(`first token ${duration(first)}`);
    if (ENDS[end]) parts.push(ENDS[end]);
    return parts.join(" · ");
}

function rate(number) {
    return number < 10 ? number.toFixed(1) : Math.round(number).toLocaleString("en");
}

function duration(seconds) {
    return seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toFixed(1)} s`;
}
