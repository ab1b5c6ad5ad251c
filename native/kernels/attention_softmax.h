// A softmax whose scores come tile by tile, and the sum of values that it weighs (online softmax,
// as in FlashAttention-2, arXiv:2307.08691).
#pragma once

#include "../simd/exp.h"
#include "attention_multiply.h"

namespace inferno {
namespace {

constexpr float kLowest = -3.402823466e38f;

// A row's softmax: the weighted sums of D dimensions (rounded up to whole registers), then sixteen
// lanes of the weights' total, then the maximum. A row that was closed has its total in the first
// lane.
struct RowLayout {
    Index padded;  // D, rounded up

    Index size() const { return padded + 2 * kLanes; }
    float& total(float* row) const { return row[padded]; }
    float& maximum(float* row) const { return row[padded + kLanes]; }
};

inline void open_row(const RowLayout& layout, float* row) {
    for (Index i = 0; i < layout.padded + kLanes; i += kLanes) store(row + i, zero());
    layout.maximum(row) = kLowest;
}

inline void close_row(const RowLayout& layout, float* row) {
    layout.total(row) = sum(load(&layout.total(row)));
}

// A new maximum; what was summed so far is made smaller.
inline void raise_maximum(const RowLayout& layout, float* row, float maximum) {
    const F factor = exp(splat(layout.maximum(row) - maximum));
    for (Index i = 0; i < layout.padded + kLanes; i += kLanes) {
        store(row + i, mul(load(row + i), factor));
    }
    layout.maximum(row) = maximum;
}

// Take a tile's scores into a row's softmax, of which those in `visible` count, times `scale`. They
// become the weights of the tile's values; those of panels outside hold anything.
template <class Weight>
void weigh(const RowLayout& layout, const Scales& scales, Span visible, float scale, float* scores,
           typename Weight::Raw* weights, float* row) {
    const Index first = visible.begin / kLanes, end = (visible.end + kLanes - 1) / kLanes;
    F most = splat(kLowest);
    for (Index panel = first; panel < end; ++panel) {
        const Index start = panel * kLanes;
        F score = mul(load(scores + start), splat(scale));
        if (scales.keys[panel]) score = mul(score, load(scales.keys[panel]));
        score = between(score, visible.begin - start, visible.end - start, -__builtin_inff());
        store(scores + start, score);
        most = max(most, score);
    }
    const float maximum = largest(most);
    if (maximum > layout.maximum(row)) raise_maximum(layout, row, maximum);

    F total = load(&layout.total(row));
    for (Index panel = first; panel < end; ++panel) {
        const Index start = panel * kLanes;
        F weight = Weight::rounded(exp(sub(load(scores + start), splat(layout.maximum(row)))));
        total = add(total, weight);
        if (scales.values[panel]) weight = mul(weight, load(scales.values[panel]));
        Weight::store(weights + start, weight);
    }
    store(&layout.total(row), total);
}

// total += part, both closed. A row that saw nothing has no weight, and changes nothing.
inline void merge_rows(const RowLayout& layout, float* total, float* part) {
    if (layout.total(part) == 0.0f) return;
    const float first = layout.maximum(total), second = layout.maximum(part);
    const float maximum = second > first ? second : first;
    const F keep = exp(splat(first - maximum)), take = exp(splat(second - maximum));
    for (Index i = 0; i < layout.padded + kLanes; i += kLanes) {
        store(total + i, fma(load(part + i), take, mul(load(total + i), keep)));
    }
    layout.maximum(total) = maximum;
}

}  // namespace
}  // namespace inferno
