// A gated mixture of experts: tokens are sorted by expert, so that each weight is read once.
//
// A choice is one token's expert of one rank: t * A + a. Rows that lie by expert are called sorted.
#include "contract/isa_functions.h"
#include "kernels/linear/gate_lanes.h"
#include "kernels/linear/product.h"

namespace inferno::INFERNO_ISA {
namespace {

// Work of fewer values is done by the caller: waking the others would take longer.
constexpr Index kFewValues = 16384;

// Pieces of a product for each thread, so that one that comes late leaves little to wait for.
constexpr Index kPieces = 16;

// From so many rows an expert on, gates are applied where the product is made: one pass less. A
// choice: what fewer rows write stays in the caches anyway.
constexpr Index kGatedFromRows = 8;

// Memory cut into arrays. Without a base it only counts.
struct Arrays {
    char* base;
    Index used;

    template <class T>
    T* take(Index count) {
        char* start = base ? base + used : nullptr;
        used += round_up(count * static_cast<Index>(sizeof(T)), 64);
        return reinterpret_cast<T*>(start);
    }
};

// One of the two products: what each expert's rows come from, and where they go.
struct Stage {
    const Weight* weights;  // [X]
    Optional bias;          // [X, outputs]
    Rows source;
    const Index* index;    // sorted row to source row; null: the same
    std::uint32_t* words;  // sorted rows, packed
    Rows out;              // sorted
    const Activation* gate;
};

// The memory of one call: P choices, X experts of which `num_used` were chosen.
struct State {
    const ExpertsArgs& args;
    Index num_choices;
    Index num_used;
    Index* starts;  // [X + 1]: first sorted row of each expert
    Index* used;    // [num_used]: experts that were chosen
    Index* tokens;  // [P]: of each sorted row
    Index* places;  // [P]: the sorted row of each choice
    bool is_gated;  // by the first product
    Rows gate_up;   // [P, 2F], sorted, unless it is
    Rows gated;     // [P, F]
    Rows outputs;   // [P, E], in the memory of what was gated
    Stage up;
    Stage down;

    Index num_rows(Index expert) const { return starts[expert + 1] - starts[expert]; }
};

Rows rows_at(char* data, Index count, Index width, Type type) {
    return {data, type, count, width, width};
}

// Lay everything out from `base` on; the bytes that takes.
Index place_arrays(State& state, char* base) {
    const ExpertsArgs& args = state.args;
    const Index count = state.num_choices;
    const Index hidden = args.down[0].inputs;
    const Type type = args.x.type;
    Arrays arrays = {base, 0};
    state.starts = arrays.take<Index>(args.num_experts + 1);
    state.used = arrays.take<Index>(args.num_experts);
    state.tokens = arrays.take<Index>(count);
    state.places = arrays.take<Index>(count);
    const Index row = count * size_of(type);
    char* gate_up = arrays.take<char>(state.is_gated ? 0 : row * 2 * hidden);
    char* gated = arrays.take<char>(row * max(hidden, args.out.width));
    state.gate_up = rows_at(gate_up, count, 2 * hidden, type);
    state.gated = rows_at(gated, count, hidden, type);
    state.outputs = rows_at(gated, count, args.out.width, type);
    const auto words_for = [&](const Weight& weight) {
        const Index bytes = activations_for(weight, count, args.beside_codes).bytes();
        return arrays.take<std::uint32_t>(bytes / 4);
    };
    std::uint32_t* x_words = words_for(args.gate_up[0]);
    std::uint32_t* gated_words = words_for(args.down[0]);
    state.up = {args.gate_up, args.gate_up_bias, args.x, state.tokens, x_words,
                state.is_gated ? state.gated : state.gate_up,
                state.is_gated ? &args.activation : nullptr};
    state.down = {args.down, args.down_bias, state.gated, nullptr, gated_words, state.outputs,
                  nullptr};
    return arrays.used;
}

void sort_choices(State& state) {
    const ExpertsArgs& args = state.args;
    for (Index x = 0; x <= args.num_experts; ++x) state.starts[x] = 0;
    for (Index c = 0; c < state.num_choices; ++c) ++state.starts[args.experts[c] + 1];
    state.num_used = 0;
    for (Index x = 0; x < args.num_experts; ++x) {
        if (state.starts[x + 1] > 0) state.used[state.num_used++] = x;
        state.starts[x + 1] += state.starts[x];
    }
    // Each expert's start moves to its end, which is the next one's start ...
    for (Index c = 0; c < state.num_choices; ++c) {
        const Index row = state.starts[args.experts[c]]++;
        state.tokens[row] = c / args.num_chosen;
        state.places[c] = row;
    }
    // ... and so all of them move back by one.
    for (Index x = args.num_experts; x > 0; --x) state.starts[x] = state.starts[x - 1];
    state.starts[0] = 0;
}

Product product_of(const State& state, const Stage& stage, Index expert) {
    const Weight& weight = stage.weights[expert];
    PackedActivations packed =
        activations_for(weight, state.num_rows(expert), state.args.beside_codes);
    packed.words = stage.words + state.starts[expert] * packed.row_words;
    Optional bias = stage.bias;
    if (bias.data) {
        const Index skipped = expert * weight.outputs * size_of(bias.type);
        bias.data = static_cast<const char*>(bias.data) + skipped;
    }
    const Rows out = rows_from(stage.out, state.starts[expert], state.starts[expert + 1]);
    return {packed, weight, bias, out, stage.gate};
}

// A row block of one expert.
struct RowBlock {
    Index expert;
    Index index;
};

Index count_row_blocks(const State& state, const Stage& stage) {
    Index count = 0;
    for (Index u = 0; u < state.num_used; ++u) {
        count += product_of(state, stage, state.used[u]).x.num_blocks;
    }
    return count;
}

// The `nth` row block of all experts.
RowBlock find_row_block(const State& state, const Stage& stage, Index nth) {
    for (Index u = 0;; ++u) {
        const Index count = product_of(state, stage, state.used[u]).x.num_blocks;
        if (nth < count) return {state.used[u], nth};
        nth -= count;
    }
}

// Pack each row block after `prepare` has made its sorted rows.
template <class Prepare>
void pack_stage(const State& state, const Stage& stage, Team& team, Prepare&& prepare) {
    const Index count = count_row_blocks(state, stage);
    const bool is_small = state.num_choices * stage.weights[0].inputs <= kFewValues;
    team.run(count, is_small ? count : 1, [&](Index begin, Index end, int) {
        for (Index nth = begin; nth < end; ++nth) {
            const RowBlock block = find_row_block(state, stage, nth);
            const Product product = product_of(state, stage, block.expert);
            const Index start = state.starts[block.expert];
            const Range rows = product.x.rows(block.index);
            prepare(Range{start + rows.begin, start + rows.end});
            pack_activations(
                stage.index ? stage.source : rows_from(stage.source, start, start + 1),
                stage.index ? stage.index + start : nullptr, product.weight, product.x,
                block.index);
        }
    });
}

// All experts' panels are one list of pieces.
void multiply_stage(const State& state, const Stage& stage, Team& team) {
    const Index panels = num_panels(stage.weights[0]) / (stage.gate ? 2 : 1);
    const Index num_pieces = team.num_threads() * kPieces;
    const Index share = (state.num_used * panels + num_pieces - 1) / num_pieces;
    const Index width = round_up(share, kMostPanels);
    const Index columns = (panels + width - 1) / width;
    team.run(state.num_used * columns, 1, [&](Index begin, Index end, int thread) {
        for (Index piece = begin; piece < end; ++piece) {
            const Product product = product_of(state, stage, state.used[piece / columns]);
            const Index first = piece % columns * width;
            multiply(product, {0, product.x.num_blocks}, {first, min(first + width, panels)}, team,
                     thread);
        }
    });
}

template <class X>
void gate_row(const State& state, Index row) {
    using Raw = typename X::Raw;
    const Index width = state.gated.width;
    const Raw* gate = static_cast<const Raw*>(state.gate_up.data) + row * state.gate_up.stride;
    Raw* out = static_cast<Raw*>(state.gated.data) + row * state.gated.stride;
    for (Index i = 0; i < width; i += 16) {
        const F up = load_part<X>(gate + width, i, width);
        const F values = gated<X>(load_part<X>(gate, i, width), up, state.args.activation);
        store_part<X>(out, i, width, values);
    }
}

template <class X, class Out>
void combine_token(const State& state, Index token) {
    const ExpertsArgs& args = state.args;
    const typename X::Raw* outputs = static_cast<const typename X::Raw*>(state.outputs.data);
    typename Out::Raw* out = static_cast<typename Out::Raw*>(args.out.data);
    const Index width = args.out.width;
    for (Index i = 0; i < width; i += 16) {
        F total = zero();
        for (Index c = token * args.num_chosen; c < (token + 1) * args.num_chosen; ++c) {
            const F output = load_part<X>(outputs + state.places[c] * width, i, width);
            total = add(total, mul(output, splat(args.weights[c])));
        }
        store_part<Out>(out + token * args.out.stride, i, width, total);
    }
}

template <class X>
void run_stages(const State& state, Team& team) {
    pack_stage(state, state.up, team, [](Range) {});
    multiply_stage(state, state.up, team);
    pack_stage(state, state.down, team, [&](Range rows) {
        if (state.is_gated) return;
        for (Index row = rows.begin; row < rows.end; ++row) gate_row<X>(state, row);
    });
    multiply_stage(state, state.down, team);
    with_activation_type(state.args.out.type, [&](auto type) {
        const Index count = state.args.out.count;
        const bool is_small = state.num_choices * state.args.out.width <= kFewValues;
        team.run(count, is_small ? count : 1, [&](Index begin, Index end, int) {
            for (Index t = begin; t < end; ++t) combine_token<X, decltype(type)>(state, t);
        });
    });
}

void run_tokens(const ExpertsArgs& args, Team& team) {
    const Index num_choices = args.x.count * args.num_chosen;
    const bool is_gated = args.down[0].inputs % kPanel == 0 &&
                          num_choices >= args.num_experts * kGatedFromRows;
    State state = {args, num_choices, 0, nullptr, nullptr, nullptr, nullptr, is_gated,
                   {}, {}, {}, {}, {}};
    const Index bytes = place_arrays(state, nullptr);
    place_arrays(state, static_cast<char*>(
                            team.scratch(team.num_threads(), static_cast<std::size_t>(bytes))));
    sort_choices(state);
    with_activation_type(args.x.type, [&](auto type) { run_stages<decltype(type)>(state, team); });
}

}  // namespace

void experts(const ExpertsArgs& args, Team& team) {
    for (Index begin = 0; begin < args.x.count; begin += kMostRows) {
        const Index end = min(begin + kMostRows, args.x.count);
        ExpertsArgs some = args;
        some.x = rows_from(args.x, begin, end);
        some.out = rows_from(args.out, begin, end);
        some.experts += begin * args.num_chosen;
        some.weights += begin * args.num_chosen;
        run_tokens(some, team);
    }
}

}  // namespace inferno::INFERNO_ISA
