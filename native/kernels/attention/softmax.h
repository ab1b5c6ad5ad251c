// A softmax whose scores come tile by tile, and the sum of values that it weighs (online softmax,
// as in FlashAttention-2, arXiv:2307.08691).
#pragma once

#include "simd/exp.h"
#include "multiply.h"

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

// The scores of N panels become weights. Those outside of `visible`, which is counted from the
// first panel on, become 0.
template <class Weight, int N>
inline void weigh_panels(const RowLayout& layout, const float* const* key_scales,
                         const float* const* value_scales, Span visible, float scale,
                         const float* scores, typename Weight::Raw* weights, float* row) {
    const bool are_whole = visible.begin <= 0 && visible.end >= N * kLanes;
    F score[N];
    F most = splat(kLowest);
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
        const Index start = n * kLanes;
        score[n] = mul(load(scores + start), splat(scale));
        if (key_scales[n]) score[n] = mul(score[n], load(key_scales[n]));
        if (!are_whole) {
            score[n] = between(score[n], visible.begin - start, visible.end - start,
                               -__builtin_inff());
        }
        most = max(most, score[n]);
    }
    const float maximum = largest(most);
    if (maximum > layout.maximum(row)) raise_maximum(layout, row, maximum);

    const F peak = splat(layout.maximum(row));
    F total = load(&layout.total(row));
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
        F weight = Weight::rounded(exp(sub(score[n], peak)));
        total = add(total, weight);
        if (value_scales[n]) weight = mul(weight, load(value_scales[n]));
        Weight::store(weights + n * kLanes, weight);
    }
    store(&layout.total(row), total);
}

// Take a tile's scores into a row's softmax, of which those in `visible` count, times `scale`. They
// become the weights of the tile's values; those of panels outside hold anything.
template <class Weight>
void weigh(const RowLayout& layout, const Scales& scales, Span visible, float scale,
           const float* scores, typename Weight::Raw* weights, float* row) {
    const Index first = visible.begin / kLanes, end = (visible.end + kLanes - 1) / kLanes;
    const Index start = first * kLanes;
    const auto weigh_some = [&](auto count) {
        weigh_panels<Weight, decltype(count)::value>(
            layout, scales.keys + first, scales.values + first,
            {visible.begin - start, visible.end - start}, scale, scores + start, weights + start,
            row);
    };
    switch (end - first) {
        case 1: return weigh_some(Count<1>{});
        case 2: return weigh_some(Count<2>{});
        case 3: return weigh_some(Count<3>{});
        default: return weigh_some(Count<kPanels>{});
    }
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
