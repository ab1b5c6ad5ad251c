// A gated mixture of experts, choice by choice.
#include <vector>

#include "contract/isa_functions.h"
#include "packed.h"

namespace inferno::INFERNO_ISA {
namespace {

// A row of values in memory of its own.
struct Row {
    std::vector<float> memory;
    Rows rows;

    Row(Index width, Type type) : memory(static_cast<std::size_t>(width) + 1) {
        rows = {memory.data(), type, 1, width, width};
    }
};

Optional of_expert(const Optional& bias, Index expert, Index width) {
    if (!bias.data) return bias;
    const char* data = static_cast<const char*>(bias.data);
    return {data + expert * width * size_of(bias.type), bias.type};
}

// One expert's output for one token.
void run_choice(const ExpertsArgs& args, Index token, Index expert, const Rows& out, Team& team) {
    const Weight& gate_up = args.gate_up[expert];
    const Weight& down = args.down[expert];
    const Type type = args.x.type;
    Row both(gate_up.outputs, type), hidden(down.inputs, type);
    Rows x = args.x;
    x.data = static_cast<char*>(x.data) + token * x.stride * size_of(type);
    x.count = 1;
    linear({x, gate_up, of_expert(args.gate_up_bias, expert, gate_up.outputs), both.rows}, team);
    gate(both.rows, args.activation, hidden.rows, team);
    linear({hidden.rows, down, of_expert(args.down_bias, expert, down.outputs), out}, team);
}

}  // namespace

void experts(const ExpertsArgs& args, Team& team) {
    Row output(args.out.width, args.x.type);
    std::vector<float> sums(static_cast<std::size_t>(args.out.width));
    for (Index t = 0; t < args.x.count; ++t) {
        sums.assign(sums.size(), 0.0f);
        for (Index c = t * args.num_chosen; c < (t + 1) * args.num_chosen; ++c) {
            run_choice(args, t, args.experts[c], output.rows, team);
            for (Index i = 0; i < args.out.width; ++i) {
                sums[i] += read(output.rows, 0, i) * args.weights[c];
            }
        }
        for (Index i = 0; i < args.out.width; ++i) write(args.out, t, i, sums[i]);
    }
}

}  // namespace inferno::INFERNO_ISA
