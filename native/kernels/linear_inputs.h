// A row of activations as the tiles read it, quantized where the weight is.
//
// It becomes words of 4 bytes, one for each weight vector it meets: a float, two bfloat16, or four
// int8. A group of 32 int8 has two more: what undoes the weights' offset, and the scale.
//
// Beside weights of int4 scales are powers of two: to apply one, its exponent is added, while the
// processor's multipliers do something else. That errs by twice as much as the best scale at most,
// where the weights err by 16 times as much. The row's last word then has the unit of its scales.
#pragma once

#include "../simd/across.h"
#include "../simd/elements.h"
#include "../simd/pairs.h"

namespace inferno {
namespace {

constexpr Index kGroupWords = 10;   // 8 of codes, then:
constexpr Index kGroupStart = 8;    // -offset * (sum of codes), which the int32 dots start from
constexpr Index kGroupScale = 9;    // float32; beside int4 what is added to the bits of floats
constexpr float kLeastPeak = 1e-30f;  // groups below this count as zeros: 127 / peak stays finite

constexpr std::uint32_t kExponent = 1 << 23;  // added to a float's bits: twice the number
// Powers of two below a row's largest scale: what is smaller counts as zero.
constexpr std::uint32_t kScaleRange = 48;

inline Index num_groups(Index width) { return (width + kGroup - 1) / kGroup; }

inline Index words_of(Packing packing, Index width) {
    switch (packing) {
        case Packing::f32: return width;
        case Packing::bf16: return (width + 1) / 2;
        default: return num_groups(width) * kGroupWords;
    }
}

inline bool has_units(Packing packing) { return packing == Packing::int4; }

inline Index row_words(const Weight& weight) {
    return words_of(weight.packing, weight.inputs) + (has_units(weight.packing) ? 1 : 0);
}

// What a weight's codes exceed its values by, so that they are unsigned bytes. E2M1 values are
// doubled to be whole: -12 to 12.
inline int code_offset(Packing packing) {
    return packing == Packing::int8 ? 128 : packing == Packing::int4 ? 8 : 12;
}

// Inputs that are made ready at a time: 16 groups, a lane for each.
constexpr Index kChunk = 16 * kGroup;

inline float float_of(std::uint32_t bits) {
    float x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}

inline I magnitude(F a) { return bit_and(as_int(a), splat_int(0x7fffffff)); }

// The least power of two that is at least x, which is 0 or normal; 0 stays what it is.
inline F power_of_two(F x) {
    const std::int32_t mantissa = kExponent - 1;
    return as_float(bit_and(add_int(as_int(x), splat_int(mantissa)), splat_int(~mantissa)));
}

struct GroupScales {
    F scales;
    F inverses;  // 0 where values are nothing to speak of
};

// Not-finite values leave no trace in the codes, so the scale becomes NaN.
inline GroupScales scales_of(Packing packing, F peaks) {
    const F most = splat(127.0f), not_finite = sub(peaks, peaks);
    F scales = div(peaks, most), inverses = div(most, peaks);
    if (has_units(packing)) {
        scales = power_of_two(scales);
        inverses = div(splat(1.0f), scales);
    }
    return {add(scales, not_finite), where_less(splat(kLeastPeak), peaks, inverses, zero())};
}

// A chunk's groups of `width` inputs in all, the last filled up with zeros.
template <bool kIsWhole, class X>
inline void write_groups(const typename X::Raw* x, Index width, Packing packing,
                         std::uint32_t* words) {
    const auto at = [&](Index i) {
        return kIsWhole ? X::load(x + i) : i < width ? load_part<X>(x, i, width) : zero();
    };
    I peaks[16], totals[16];
#pragma GCC unroll 16
    for (Index g = 0; g < 16; ++g) {
        // Magnitudes are ordered as their bits are, NaN last.
        peaks[g] = max_int(magnitude(at(g * kGroup)), magnitude(at(g * kGroup + 16)));
    }
    const F peak = as_float(across(peaks, [](I a, I b) { return max_int(a, b); }));
    const GroupScales of = scales_of(packing, peak);
    alignas(64) float inverses[16], scales[16], starts[16];
    store(inverses, of.inverses);
    store(scales, of.scales);
    alignas(64) std::uint32_t codes[16 * 8];
#pragma GCC unroll 16
    for (Index g = 0; g < 16; ++g) {
        const F inverse = splat(inverses[g]);
        const I low = to_int(mul(at(g * kGroup), inverse));
        const I high = to_int(mul(at(g * kGroup + 16), inverse));
        store_i8(reinterpret_cast<std::int8_t*>(codes + 8 * g), low);
        store_i8(reinterpret_cast<std::int8_t*>(codes + 8 * g + 4), high);
        totals[g] = add_int(low, high);
    }
    const F total = to_float(across(totals, [](I a, I b) { return add_int(a, b); }));
    const float offset = static_cast<float>(code_offset(packing));
    store(starts, as_float(to_int(mul(total, splat(-offset)))));
    for (Index g = 0; g < num_groups(width); ++g, words += kGroupWords) {
        __builtin_memcpy(words, codes + 8 * g, 32);
        __builtin_memcpy(words + kGroupStart, starts + g, 4);
        __builtin_memcpy(words + kGroupScale, scales + g, 4);
    }
}

// The scales of a row's groups, of which the words are `stride` apart, as exponents above its unit.
// That becomes the last word; NaN if a scale is NaN.
inline void share_unit(std::uint32_t* words, Index stride, Index num_groups) {
    const Index step = kGroupWords * stride;
    std::uint32_t* const end = words + num_groups * step;
    std::uint32_t most = 0;  // positive floats are ordered as their bits are, NaN last
    for (std::uint32_t* group = words; group < end; group += step) {
        const std::uint32_t scale = group[kGroupScale * stride];
        if (scale > most) most = scale;
    }
    const std::uint32_t range = kScaleRange * kExponent;
    const std::uint32_t unit = most > range + kExponent ? most - range : kExponent;
    for (std::uint32_t* group = words; group < end; group += step) {
        std::uint32_t& scale = group[kGroupScale * stride];
        if (scale < unit) {
            for (Index w = 0; w <= kGroupStart; ++w) group[w * stride] = 0;
        }
        scale = scale < unit ? 0 : scale - unit;
    }
    const bool is_finite = float_of(most) == float_of(most);
    *end = is_finite ? unit : most;
}

template <class X>
inline void write_floats(const typename X::Raw* x, Index width, std::uint32_t* words) {
    for (Index i = 0; i < width; i += 16) {
        store_part<F32>(reinterpret_cast<float*>(words), i, width, load_part<X>(x, i, width));
    }
}

template <class X>
inline void write_pairs(const typename X::Raw* x, Index width, std::uint32_t* words) {
    if (width % 2 != 0) words[width / 2] = 0;
    for (Index i = 0; i < width; i += 16) {
        store_part<BF16>(reinterpret_cast<std::uint16_t*>(words), i, width,
                         load_part<X>(x, i, width));
    }
}

// Rows whose words are interleaved together, where there are so many.
constexpr Index kTogether = 16;

// Word w of row r goes to target[w * stride + r]. Sixteen words are read at a time: what lies after
// the last goes nowhere.
inline void interleave_words(const std::uint32_t (&rows)[kTogether][kChunk], Index num_words,
                             std::uint32_t* target, Index stride) {
    for (Index w = 0; w < num_words; w += 16) {
        I lanes[16];
#pragma GCC unroll 16
        for (Index r = 0; r < 16; ++r) lanes[r] = load_int(rows[r] + w);
        transpose(lanes);
        const Index end = min(num_words, w + 16);
#pragma GCC unroll 16
        for (Index i = 0; i < 16; ++i) {
            if (w + i < end) store_int(target + (w + i) * stride, lanes[i]);
        }
    }
}

// The words of up to a chunk of a row, which begins with a chunk.
template <class X>
inline void write_words(const typename X::Raw* x, Index width, Packing packing,
                        std::uint32_t* words) {
    switch (packing) {
        case Packing::f32: return write_floats<X>(x, width, words);
        case Packing::bf16: return write_pairs<X>(x, width, words);
        default:
            if (width == kChunk) return write_groups<true, X>(x, width, packing, words);
            return write_groups<false, X>(x, width, packing, words);
    }
}

}  // namespace
}  // namespace inferno
