// Quantization of weights: a lane for each of a panel's 16 outputs, and its groups one by one.
#include "../simd/elements.h"
#include "families.h"
#include "quantize_grid.h"

namespace inferno::INFERNO_LEVEL {
namespace {

// One group of 16 outputs: [32 inputs][16 outputs].
struct Group {
    alignas(64) float values[kGroup * kPanel];

    F at(Index input) const { return load(values + input * kPanel); }
};

template <class Grid>
F clamped(F a) {
    return min(max(a, splat(Grid::kLowest)), splat(Grid::kHighest));
}

I rounded_up_to_bf16(F positive) {
    return bit_and(add_int(as_int(positive), splat_int(0xffff)), splat_int(~0xffff));
}

// `count` elements, 32 at most, and zeros up to there.
template <class X>
void load_inputs(const typename X::Raw* x, Index count, float* inputs) {
    for (Index i = 0; i < kGroup; i += 16) {
        const int n = static_cast<int>(min(max(count - i, 0), 16));
        store(inputs + i, n == 16 ? X::load(x + i) : X::load_first(x + i, n));
    }
}

// Rows from `row` on, inputs from `first` on; beyond the last of either there are zeros.
template <class X>
void load_group(const Rows& source, Index row, Index first, Group& group) {
    const typename X::Raw* x = static_cast<const typename X::Raw*>(source.data);
    for (Index lane = 0; lane < kPanel; ++lane) {
        alignas(64) float inputs[kGroup];
        const Index count = row + lane < source.count ? source.width - first : 0;
        load_inputs<X>(x + (row + lane) * source.stride + first, count, inputs);
        for (Index i = 0; i < kGroup; ++i) group.values[i * kPanel + lane] = inputs[i];
    }
}

// The largest magnitude; NaN where something is not finite.
F peak_of(const Group& group) {
    F peak = zero(), nothing = zero();
    for (Index i = 0; i < kGroup; ++i) {
        const F value = group.at(i);
        peak = max(peak, max(value, sub(zero(), value)));
        nothing = add(nothing, sub(value, value));
    }
    return add(peak, nothing);
}

// In units of the scale, whose inverse is given.
template <class Grid>
F squared_error(const Group& group, F inverse) {
    F total = zero();
    for (Index i = 0; i < kGroup; ++i) {
        const F exact = mul(group.at(i), inverse);
        const F error = sub(exact, clamped<Grid>(round(exact)));
        total = add(total, mul(error, error));
    }
    return total;
}

// The least squares' scale for the values that `scale` gives.
template <class Grid>
F fitted(const Group& group, F scale) {
    const F inverse = div(splat(1.0f), scale);
    F product = zero(), squares = zero();
    for (Index i = 0; i < kGroup; ++i) {
        const F value = clamped<Grid>(round(mul(group.at(i), inverse)));
        product = add(product, mul(group.at(i), value));
        squares = add(squares, mul(value, value));
    }
    return round_bf16(div(product, squares));
}

// The best scale so far; of equally good ones the first. Errors are relative to the group's peak,
// lest they underflow.
template <class Grid>
struct Best {
    const Group& group;
    F peak_inverse;
    F error = splat(__builtin_inff());
    F scale = zero();

    void offer(F other) {
        const F relative = mul(other, peak_inverse);
        const F squared = squared_error<Grid>(group, div(splat(1.0f), other));
        const F other_error = mul(squared, mul(relative, relative));
        scale = where_less(other_error, error, other, scale);
        error = where_less(other_error, error, other_error, error);
    }
};

template <class Grid>
F best_scale(const Group& group, F peak) {
    const I first = rounded_up_to_bf16(div(peak, splat(Grid::kWidest)));
    Best<Grid> best{group, div(splat(1.0f), peak)};
    for (int n = 0; n < Grid::kNumScales; ++n) {
        const F scale = as_float(add_int(first, splat_int(n * Grid::kStride << 16)));
        best.offer(scale);
        if (Grid::kNumSigns == 2) best.offer(sub(zero(), scale));
    }
    if (Grid::kStride > 1) best.offer(fitted<Grid>(group, best.scale));
    return best.scale;
}

// A group's codes; zeros where there are no values to speak of.
template <class Grid>
struct Codes {
    const Group& group;
    F peak;
    F inverse;

    I at(Index input) const {
        const F value = clamped<Grid>(round(mul(group.at(input), inverse)));
        const F seen = where_less(splat(kLeastWeight), peak, value, zero());
        return add_int(to_int(seen), splat_int(Grid::kOffset));
    }

    // Those of four inputs, a byte each.
    I four(Index input) const {
        return add_int(add_int(at(input), shift_left<8>(at(input + 1))),
                       add_int(shift_left<16>(at(input + 2)), shift_left<24>(at(input + 3))));
    }
};

void write(const Codes<Int8Grid>& codes, float* out) {
    for (Index s = 0; s < 8; ++s) store(out + s * kPanel, as_float(codes.four(4 * s)));
}

void write(const Codes<Int4Grid>& codes, float* out) {
    for (Index s = 0; s < 4; ++s) {
        const I high = shift_left<4>(codes.four(8 * s + 4));
        store(out + s * kPanel, as_float(add_int(codes.four(8 * s), high)));
    }
}

// What is not finite could not be seen in the codes, so the scale becomes NaN.
template <class Grid>
void quantize_group(const Group& group, float* codes, std::uint16_t* scales) {
    const F peak = peak_of(group);
    const F best = best_scale<Grid>(group, peak);
    const F zero_or_nan = sub(peak, peak);
    store_bf16(scales, where_less(splat(kLeastWeight), peak, best, zero_or_nan));
    write(Codes<Grid>{group, peak, div(splat(1.0f), best)}, codes);
}

template <class X, class Grid>
void quantize_panel(const Rows& source, Index row, const Weight& target, Index panel) {
    const Index num_groups = round_up(target.inputs, kGroup) / kGroup;
    const Index group_words = panel_bytes(target) / num_groups / 4;
    float* codes = static_cast<float*>(const_cast<void*>(target.data)) +
                   panel * num_groups * group_words;
    std::uint16_t* scales = static_cast<std::uint16_t*>(const_cast<void*>(target.scales)) +
                            panel * num_groups * kPanel;
    for (Index g = 0; g < num_groups; ++g) {
        Group group;
        load_group<X>(source, row, g * kGroup, group);
        quantize_group<Grid>(group, codes + g * group_words, scales + g * kPanel);
    }
}

}  // namespace

void quantize(const Rows& source, std::int64_t first, const Weight& target, Team& team) {
    const Index num_panels = round_up(source.count, kPanel) / kPanel;
    with_activation_type(source.type, [&](auto type) {
        using X = decltype(type);
        team.run(num_panels, 1, [&](Index begin, Index end, int) {
            for (Index p = begin; p < end; ++p) {
                const Index panel = first / kPanel + p;
                if (target.packing == Packing::int8) {
                    quantize_panel<X, Int8Grid>(source, p * kPanel, target, panel);
                } else {
                    quantize_panel<X, Int4Grid>(source, p * kPanel, target, panel);
                }
            }
        });
    });
}

}  // namespace inferno::INFERNO_LEVEL
