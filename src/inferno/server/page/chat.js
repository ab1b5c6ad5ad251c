// The chat page: turns of question and answer, and what a person can do with them.

import { Problem, answer, loadingProgress, servedModel, useKey } from "./api.js";
import { Settings } from "./settings.js";
import { loadTurns, saveTurns } from "./store.js";
import { TurnView, newAnswer } from "./turn.js";

const PATIENCE = 1000; // ms between two looks at a model that is loading
const SAVE_EVERY = 1000; // ms, while an answer comes
const NEAR_THE_END = 80; // px; who is further up stays there

const $ = (id) => document.getElementById(id);
const settings = new Settings($("settings"));
const turns = []; // { question, answer, view }
let running = null; // the AbortController of the answer that is coming
let isEditing = false;
let hasGivenKey = false;

async function begin() {
    for (const { question, answer: saved } of loadTurns()) {
        const given = { ...newAnswer(), ...saved, end: saved.end ?? "stopped" };
        addTurn(question, given).view.show(given, given.end);
    }
    showState();
    scrollTo(0, document.body.scrollHeight);
    listen();
    await meetModel();
}

// Waits until the model is loaded, then tells its name.
async function meetModel() {
    try {
        for (let progress; (progress = await loadingProgress()) !== null; ) {
            const percent = progress ? ` ${Math.round(progress * 100)} %` : "";
            tell(`Loading the model${percent} …`);
            await new Promise((resolve) => setTimeout(resolve, PATIENCE));
        }
        const { name, context } = await servedModel();
        $("model").textContent = name;
        document.title = `${name} · inferno`;
        settings.limit(context);
        tell("");
    } catch (problem) {
        if (problem.needsKey) return askForKey(meetModel);
        tell(wordsOf(problem));
        setTimeout(meetModel, Math.max(5, problem.retryAfter ?? 0) * 1000);
    }
}

async function ask(question) {
    if (isEditing) dropLast();
    leaveEditing();
    await run(addTurn(question, newAnswer()));
}

async function retry() {
    const turn = turns.at(-1);
    if (running || !turn) return;
    dropLast();
    await run(addTurn(turn.question, newAnswer()));
}

// Asks for the answer to the last turn, and shows it as it comes.
async function run(turn) {
    const controller = (running = new AbortController());
    const show = onceAFrame(() => {
        if (turn.answer.end === null) keepTheEnd(() => turn.view.show(turn.answer, null));
    });
    const saving = setInterval(save, SAVE_EVERY);
    showState();
    tell("Answering …");
    scrollTo(0, document.body.scrollHeight);
    try {
        await receive(turn.answer, controller.signal, show);
        tell("");
    } catch (problem) {
        const isStopped = controller.signal.aborted;
        turn.answer.end = isStopped ? "stopped" : "failed";
        if (!isStopped) turn.answer.problem = wordsOf(problem);
        tell(isStopped && turns.includes(turn) ? "Stopped" : "");
        if (problem.needsKey) askForKey(retry);
    } finally {
        clearInterval(saving);
        if (running === controller) running = null;
        if (turns.includes(turn)) keepTheEnd(() => turn.view.show(turn.answer, turn.answer.end));
        showState();
        save();
    }
}

async function receive(into, signal, show) {
    const started = performance.now();
    for await (const piece of answer(messages(), settings.fields, signal)) {
        into.seconds = (performance.now() - started) / 1000;
        if (piece.content || piece.reasoning) into.first ??= into.seconds;
        into.text += piece.content;
        into.reasoning += piece.reasoning;
        into.tokens = piece.tokens || into.tokens;
        into.finish = piece.end ?? into.finish;
        show();
    }
    into.end = into.finish ?? "stop";
}

// The conversation as the API takes it; a question that got no answer is left out.
function messages() {
    const list = settings.system ? [{ role: "system", content: settings.system }] : [];
    for (const { question, answer: given } of turns.slice(0, -1)) {
        if (given.text === "") continue;
        list.push({ role: "user", content: question }, { role: "assistant", content: given.text });
    }
    return [...list, { role: "user", content: turns.at(-1).question }];
}

function wordsOf(problem) {
    if (!(problem instanceof Problem)) {
        console.error(problem);
        return "This page made a mistake; reload it and try again.";
    }
    if (problem.code === "context_length_exceeded") {
        return `${problem.message} Begin a new chat, or shorten your message.`;
    }
    return problem.retryAfter
        ? `${problem.message} Retry after ${problem.retryAfter} s.`
        : problem.message;
}

function askForKey(afterwards) {
    const dialog = $("ask-key");
    const form = dialog.querySelector("form");
    $("key-problem").textContent = hasGivenKey
        ? "The server does not take that key."
        : "The server answers only those who have a key.";
    form.onsubmit = () => {
        hasGivenKey = true;
        useKey(form.elements.key.value);
        form.reset();
        afterwards();
    };
    if (!dialog.open) dialog.showModal();
}

function addTurn(question, given) {
    const turn = { question, answer: given };
    turn.view = new TurnView($("turns"), turn);
    turns.push(turn);
    return turn;
}

function dropLast() {
    turns.pop()?.view.remove();
}

function startAnew() {
    running?.abort();
    while (turns.length) dropLast();
    leaveEditing();
    save();
    showState();
    tell("");
    $("question").focus();
}

function edit() {
    isEditing = true;
    keepTheEnd(() => ($("editing").hidden = false));
    $("question").value = turns.at(-1).question;
    fit();
    $("question").focus();
}

function leaveEditing() {
    if (isEditing) $("question").value = "";
    isEditing = false;
    $("editing").hidden = true;
    fit();
}

function save() {
    saveTurns(turns.map(({ question, answer: given }) => ({ question, answer: given })));
}

function showState() {
    $("welcome").hidden = turns.length > 0;
    $("send").hidden = running !== null;
    $("stop").hidden = running === null;
    document.body.classList.toggle("running", running !== null);
}

function tell(words) {
    $("status").textContent = words;
}

// Does what changes the page's height, and stays at its end if that is where the person is.
function keepTheEnd(change) {
    const isAtEnd = distanceToEnd() < NEAR_THE_END;
    change();
    if (isAtEnd) scrollTo(0, document.body.scrollHeight);
    showWayDown();
}

function distanceToEnd() {
    return document.documentElement.scrollHeight - innerHeight - scrollY;
}

function showWayDown() {
    $("latest").hidden = distanceToEnd() < NEAR_THE_END;
}

function onceAFrame(work) {
    let isWaiting = false;
    return () => {
        if (isWaiting) return;
        isWaiting = true;
        requestAnimationFrame(() => {
            isWaiting = false;
            work();
        });
    };
}

function send() {
    const question = $("question").value.trim();
    if (!question || running) return;
    $("question").value = "";
    ask(question);
}

// As high as its text, up to what the style allows.
function fit() {
    const field = $("question");
    keepTheEnd(() => {
        field.style.height = "auto";
        field.style.height = `${field.scrollHeight}px`;
    });
}

async function copy(button, text) {
    try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
    } catch {
        button.textContent = "Not allowed"; // such as over plain HTTP from another machine
    }
    setTimeout(() => (button.textContent = "Copy"), 1500);
}

const ACTS = {
    retry,
    edit,
    copy: (button) => {
        const root = button.closest(".turn");
        copy(button, turns.find((turn) => turn.view.root === root).answer.text);
    },
    "copy-code": (button) => copy(button, button.closest(".code").querySelector("code").textContent),
};

function listen() {
    $("composer").addEventListener("submit", (event) => {
        event.preventDefault();
        send();
    });
    $("question").addEventListener("input", fit);
    $("question").addEventListener("keydown", (event) => {
        if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
        event.preventDefault();
        send();
    });
    document.addEventListener("keydown", (event) => {
        if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
        if (running) running.abort();
        else leaveEditing();
    });
    $("turns").addEventListener("click", ({ target }) => ACTS[target.dataset.do]?.(target));
    $("stop").addEventListener("click", () => running?.abort());
    $("new").addEventListener("click", startAnew);
    $("open-settings").addEventListener("click", () => settings.open());
    $("leave-editing").addEventListener("click", leaveEditing);
    $("latest").addEventListener("click", () => scrollTo(0, document.body.scrollHeight));
    addEventListener("scroll", showWayDown, { passive: true });
    addEventListener("pagehide", () => {
        running?.abort();
        save();
    });
}

begin();
