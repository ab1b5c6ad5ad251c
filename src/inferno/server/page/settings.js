// The settings that a person picks, in their dialog; what is empty is left to the model.

import { Problem } from "./api.js";
import { readSchema } from "./json.js";
import { loadSettings, saveSettings } from "./store.js";

const NAMES = ["system", "temperature", "max_tokens", "schema"];

export class Settings {
    constructor(dialog) {
        this.dialog = dialog;
        this.inputs = dialog.querySelector("form").elements;
        const saved = loadSettings();
        for (const name of NAMES) this.inputs[name].value = String(saved[name] ?? "");
        this.inputs.trims.checked = saved.trims === true;
        dialog.addEventListener("input", () => this.#save());
        this.#checkSchema();
        dialog.querySelector("#defaults").addEventListener("click", () => {
            for (const name of NAMES) this.inputs[name].value = "";
            this.inputs.trims.checked = false;
            this.#save();
        });
    }

    open() {
        this.dialog.querySelector("#shape").open = this.inputs.schema.value.trim() !== "";
        this.dialog.showModal();
    }

    // How many tokens the context holds, for the field that can't ask for more.
    limit(context) {
        const shown = context.toLocaleString("en");
        this.inputs.max_tokens.max = context;
        this.dialog.querySelector("#context").textContent =
            `Messages and answers share a context of ${shown} tokens.`;
    }

    get system() {
        return this.inputs.system.value.trim();
    }

    // The fields of a request that were picked; a schema that can't be one is a Problem.
    get fields() {
        const fields = {};
        const { schema, problem } = readSchema(this.inputs.schema.value);
        if (problem) throw new Problem(`${problem} Mend it in the settings, or empty it.`);
        if (schema) {
            const json_schema = { name: "answer", schema };
            fields.response_format = { type: "json_schema", json_schema };
        }
        const { temperature } = this.inputs;
        if (isPicked(temperature)) fields.temperature = temperature.valueAsNumber;
        return { ...fields, max_completion_tokens: this.most };
    }

    // Tokens of an answer at most, where that was picked.
    get most() {
        const { max_tokens } = this.inputs;
        return isPicked(max_tokens) ? max_tokens.valueAsNumber : undefined;
    }

    // Whether the oldest turns are left out by themselves where the context is full.
    get trims() {
        return this.inputs.trims.checked;
    }

    set trims(trims) {
        this.inputs.trims.checked = trims;
        this.#save();
    }

    #checkSchema() {
        const { problem } = readSchema(this.inputs.schema.value);
        const told = this.dialog.querySelector("#schema-problem");
        told.hidden = !problem;
        told.textContent = problem ?? "";
        this.inputs.schema.setAttribute("aria-invalid", Boolean(problem));
    }

    #save() {
        this.#checkSchema();
        const texts = NAMES.map((name) => [name, this.inputs[name].value]);
        saveSettings({ ...Object.fromEntries(texts), trims: this.trims });
    }
}

function isPicked(input) {
    return input.value !== "" && input.checkValidity();
}
