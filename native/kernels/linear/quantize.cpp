// Quantization of weights (contract/packings.h): a lane for each of a panel's 16 outputs, and its
// scale groups one by one.
#include "contract/isa_functions.h"
#include "simd/elements.h"

namespace inferno::INFERNO_ISA {
namespace {

// One scale group of 16 outputs: [32 inputs][16 outputs].
struct ScaleGroup {
    alignas(64) float values[kScaleGroup * kPanel];

    F at(Index input) const { return load(values + input * kPanel); }
};

template <class Format>
F clamped(F a) {
    return min(max(a, splat(Format::kLowest)), splat(Format::kHighest));
}

I rounded_up_to_bf16(F positive) {
    return bit_and(add_int(as_int(positive), splat_int(0xffff)), splat_int(~0xffff));
}

// `count` elements, 32 at most, and zeros up to there.
template <class X>
void load_inputs(const typename X::Raw* x, Index count, float* inputs) {
    for (Index i = 0; i < kScaleGroup; i += 16) {
        const int n = static_cast<int>(min(max(count - i, 0), 16));
        store(inputs + i, n == 16 ? X::load(x + i) : X::load_first(x + i, n));
    }
}

// Rows from `row` on, inputs from `first` on; beyond the last of either there are zeros.
template <class X>
void load_group(const Rows& source, Index row, Index first, ScaleGroup& group) {
    const typename X::Raw* x = static_cast<const typename X::Raw*>(source.data);
    for (Index lane = 0; lane < kPanel; ++lane) {
        alignas(64) float inputs[kScaleGroup];
        const Index count = row + lane < source.count ? source.width - first : 0;
        load_inputs<X>(x + (row + lane) * source.stride + first, count, inputs);
        for (Index i = 0; i < kScaleGroup; ++i) group.values[i * kPanel + lane] = inputs[i];
    }
}

// The largest magnitude; NaN where something is not finite.
F peak_of(const ScaleGroup& group) {
    F peak = zero(), nothing = zero();
    for (Index i = 0; i < kScaleGroup; ++i) {
        const F value = group.at(i);
        peak = max(peak, max(value, sub(zero(), value)));
        nothing = add(nothing, sub(value, value));
    }
    return add(peak, nothing);
}

// In units of the scale, whose inverse is given.
template <class Format>
F squared_error(const ScaleGroup& group, F inverse) {
    F total = zero();
    for (Index i = 0; i < kScaleGroup; ++i) {
        const F exact = mul(group.at(i), inverse);
        const F error = sub(exact, clamped<Format>(round(exact)));
        total = add(total, mul(error, error));
    }
    return total;
}

// The least squares' scale for the values that `scale` gives.
template <class Format>
F fitted(const ScaleGroup& group, F scale) {
    const F inverse = div(splat(1.0f), scale);
    F product = zero(), squares = zero();
    for (Index i = 0; i < kScaleGroup; ++i) {
        const F value = clamped<Format>(round(mul(group.at(i), inverse)));
        product = add(product, mul(group.at(i), value));
        squares = add(squares, mul(value, value));
    }
    return round_bf16(div(product, squares));
}

// The best scale so far; of equally good ones the first. Errors are relative to the group's peak,
// lest they underflow.
template <class Format>
struct Best {
    const ScaleGroup& group;
    F peak_inverse;
    F error = splat(__builtin_inff());
    F scale = zero();

    void offer(F other) {
        const F relative = mul(other, peak_inverse);
        const F squared = squared_error<Format>(group, div(splat(1.0f), other));
        const F other_error = mul(squared, mul(relative, relative));
        scale = where_less(other_error, error, other, scale);
        error = where_less(other_error, error, other_error, error);
    }
};

template <class Format>
F best_scale(const ScaleGroup& group, F peak) {
    const I first = rounded_up_to_bf16(div(peak, splat(Format::kWidest)));
    Best<Format> best{group, div(splat(1.0f), peak)};
    for (int n = 0; n < Format::kNumScales; ++n) {
        const F scale = as_float(add_int(first, splat_int(n * Format::kStride << 16)));
        best.offer(scale);
        if (Format::kNumSigns == 2) best.offer(sub(zero(), scale));
    }
    if (Format::kStride > 1) best.offer(fitted<Format>(group, best.scale));
    return best.scale;
}

// A group's codes; zeros where there are no values to speak of.
template <class Format>
struct GroupCodes {
    const ScaleGroup& group;
    F peak;
    F inverse;

    I at(Index input) const {
        const F value = clamped<Format>(round(mul(group.at(input), inverse)));
        const F seen = where_less(splat(kLeastWeight), peak, value, zero());
        return add_int(to_int(seen), splat_int(Format::kZeroPoint));
    }

    // The codes of four inputs, a byte each.
    I four(Index input) const {
        return add_int(add_int(at(input), shift_left<8>(at(input + 1))),
                       add_int(shift_left<16>(at(input + 2)), shift_left<24>(at(input + 3))));
    }
};

template <class Format>
void write(const GroupCodes<Format>& codes, float* out) {
    if constexpr (Format::kBits == 8) {
        for (Index s = 0; s < 8; ++s) store(out + s * kPanel, as_float(codes.four(4 * s)));
    } else {
        static_assert(Format::kBits == 4);
        for (Index s = 0; s < 4; ++s) {
            const I high = shift_left<4>(codes.four(8 * s + 4));
            store(out + s * kPanel, as_float(add_int(codes.four(8 * s), high)));
        }
    }
}

// A value that is not finite could not be seen in the codes, so the scale becomes NaN.
template <class Format>
void quantize_group(const ScaleGroup& group, float* codes, std::uint16_t* scales) {
    const F peak = peak_of(group);
    const F best = best_scale<Format>(group, peak);
    const F zero_or_nan = sub(peak, peak);
    store_bf16(scales, where_less(splat(kLeastWeight), peak, best, zero_or_nan));
    write(GroupCodes<Format>{group, peak, div(splat(1.0f), best)}, codes);
}

template <class X, class Format>
void quantize_panel(const Rows& source, Index row, const Weight& target, Index panel) {
    static_assert(Format::kScaleType == ScaleType::bf16);
    constexpr Index kGroupWords = kScaleGroup * kPanel * Format::kBits / 32;
    const Index num_groups = num_scale_groups(target.inputs);
    float* codes = static_cast<float*>(const_cast<void*>(target.data)) +
                   panel * num_groups * kGroupWords;
    std::uint16_t* scales = static_cast<std::uint16_t*>(const_cast<void*>(target.scales)) +
                            panel * num_groups * kPanel;
    for (Index g = 0; g < num_groups; ++g) {
        ScaleGroup group;
        load_group<X>(source, row, g * kScaleGroup, group);
        quantize_group<Format>(group, codes + g * kGroupWords, scales + g * kPanel);
    }
}

template <class X, class Format>
void quantize_panels(const Rows& source, Index first, const Weight& target, Team& team) {
    const Index num_panels = round_up(source.count, kPanel) / kPanel;
    team.run(num_panels, 1, [&](Index begin, Index end, int) {
        for (Index p = begin; p < end; ++p) {
            quantize_panel<X, Format>(source, p * kPanel, target, first / kPanel + p);
        }
    });
}

}  // namespace

void quantize(const Rows& source, std::int64_t first, const Weight& target, Team& team) {
    with_packing(target.packing, [&](auto format) {
        using Format = decltype(format);
        if constexpr (Format::kIsQuantized) {
            with_activation_type(source.type, [&](auto type) {
                quantize_panels<decltype(type), Format>(source, first, target, team);
            });
        }
    });
}

}  // namespace inferno::INFERNO_ISA
