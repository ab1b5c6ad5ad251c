// A row of activations as the tiles read it, quantized where the weight is.
//
// It becomes words of 4 bytes, one for each weight vector it meets: a float, two bfloat16, or four
// int8. A scale group of 32 int8 has two more: what undoes the weights' zero point, and the scale;
// where weights have an offset, the first is what that is multiplied with; where halves of scale
// groups have scales of their own, what undoes the second half's zero point is a third. What undoes
// it is an int32, or two words (kHasWordStarts): of the first two of each four inputs, and of the
// last two.
// Where a row has a unit (contract/packings.h), that is its last word.
#pragma once

#include "codes.h"
#include "simd/across.h"
#include "simd/pairs.h"

namespace inferno {
namespace {

constexpr Index kGroupStart = 8;   // -zero point * (sum of codes), where the int32 dots start
constexpr Index kGroupSum = 8;     // beside offsets: float32, scale * (sum of codes), in row units
constexpr Index kGroupScale = 9;   // float32; where a row has a unit, what floats' bits grow by
constexpr Index kSecondStart = 10;  // of the second half

template <class Format>
constexpr Index kGroupWords = Format::kHasHalves ? 11 : 10;  // of a scale group: first 8 of codes
// Scale groups whose peak is less count as zeros: 127 / peak stays finite.
constexpr float kLeastPeak = 1e-30f;

constexpr std::uint32_t kExponent = 1 << 23;  // added to a float's bits: twice the number
// Powers of two below a row's largest scale: what is smaller counts as zero. A choice, far beyond
// the 24 bits of a float32 sum.
constexpr std::uint32_t kScaleRange = 48;

template <class Format>
constexpr Index words_of(Index width) {
    if constexpr (Format::kHasScales) return num_scale_groups(width) * kGroupWords<Format>;
    return (width + Format::kInputUnit - 1) / Format::kInputUnit;
}

template <class Format>
constexpr Index row_words(Index width) {
    return words_of<Format>(width) + (Format::kHasRowUnit ? 1 : 0);
}

// Inputs that are packed at a time: 16 scale groups, a lane for each.
constexpr Index kChunk = 16 * kScaleGroup;

inline float float_of(std::uint32_t bits) {
    float x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}

inline std::uint32_t bits_of(float x) {
    std::uint32_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    return bits;
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
template <class Format>
inline GroupScales scales_of(F peaks) {
    const F most = splat(127.0f), not_finite = sub(peaks, peaks);
    F scales = div(peaks, most), inverses = div(most, peaks);
    if constexpr (Format::kHasRowUnit) {
        scales = power_of_two(scales);
        inverses = div(splat(1.0f), scales);
    }
    return {add(scales, not_finite), where_less(splat(kLeastPeak), peaks, inverses, zero())};
}

// What undoes the zero point, given the codes of sixteen scale groups, or halves.
template <class Format>
inline I start_of_dots(const I (&codes)[16]) {
    const F totals = to_float(across(codes, [](I a, I b) { return add_int(a, b); }));
    return to_int(mul(totals, splat(-static_cast<float>(Format::kZeroPoint))));
}

template <class Format>
inline I start_words(const I (&codes)[16]) {
    alignas(64) static constexpr std::int32_t kFirstTwo[16] = {-1, -1, 0, 0, -1, -1, 0, 0,
                                                               -1, -1, 0, 0, -1, -1, 0, 0};
    alignas(64) static constexpr std::int32_t kLastTwo[16] = {0, 0, -1, -1, 0, 0, -1, -1,
                                                              0, 0, -1, -1, 0, 0, -1, -1};
    I first[16], last[16];
    for (Index g = 0; g < 16; ++g) {
        first[g] = bit_and(codes[g], load_int_aligned(kFirstTwo));
        last[g] = bit_and(codes[g], load_int_aligned(kLastTwo));
    }
    return add_int(bit_and(start_of_dots<Format>(first), splat_int(0xffff)),
                   shift_left<16>(start_of_dots<Format>(last)));
}

// A chunk's scale groups of `width` inputs in all, the last filled up with zeros.
template <bool kIsWhole, class Format, class X>
inline void write_groups(const typename X::Raw* x, Index width, std::uint32_t* words) {
    const auto at = [&](Index i) {
        return kIsWhole ? X::load(x + i) : i < width ? load_part<X>(x, i, width) : zero();
    };
    I peaks[16], totals[16], second_totals[16];
#pragma GCC unroll 16
    for (Index g = 0; g < 16; ++g) {
        // Magnitudes are ordered as their bits are, NaN last.
        peaks[g] = max_int(magnitude(at(g * kScaleGroup)), magnitude(at(g * kScaleGroup + 16)));
    }
    const F peak = as_float(across(peaks, [](I a, I b) { return max_int(a, b); }));
    const GroupScales of = scales_of<Format>(peak);
    alignas(64) float inverses[16], scales[16], starts[16];
    store(inverses, of.inverses);
    store(scales, of.scales);
    alignas(64) std::uint32_t codes[16 * 8];
#pragma GCC unroll 16
    for (Index g = 0; g < 16; ++g) {
        const F inverse = splat(inverses[g]);
        const I low = to_int(mul(at(g * kScaleGroup), inverse));
        const I high = to_int(mul(at(g * kScaleGroup + 16), inverse));
        store_i8(reinterpret_cast<std::int8_t*>(codes + 8 * g), low);
        store_i8(reinterpret_cast<std::int8_t*>(codes + 8 * g + 4), high);
        totals[g] = Format::kHasHalves ? low : add_int(low, high);
        second_totals[g] = high;
    }
    const auto start_of = [](const I(&of)[16]) {
        return as_float(kHasWordStarts<Format> ? start_words<Format>(of) : start_of_dots<Format>(of));
    };
    alignas(64) float second_starts[16];
    if constexpr (Format::kHasOffset) {
        const F total = to_float(across(totals, [](I a, I b) { return add_int(a, b); }));
        store(starts, mul(total, of.scales));
    } else {
        store(starts, start_of(totals));
    }
    if constexpr (Format::kHasHalves) store(second_starts, start_of(second_totals));
    for (Index g = 0; g < num_scale_groups(width); ++g, words += kGroupWords<Format>) {
        __builtin_memcpy(words, codes + 8 * g, 32);
        __builtin_memcpy(words + kGroupStart, starts + g, 4);
        __builtin_memcpy(words + kGroupScale, scales + g, 4);
        if constexpr (Format::kHasHalves) {
            __builtin_memcpy(words + kSecondStart, second_starts + g, 4);
        }
    }
}

// The scales of a row's scale groups, of which the words are `stride` apart, as exponents above the
// row's unit. That becomes the last word; NaN if a scale is NaN.
template <class Format>
inline void share_unit(std::uint32_t* words, Index stride, Index num_groups) {
    const Index step = kGroupWords<Format> * stride;
    std::uint32_t* const end = words + num_groups * step;
    std::uint32_t most = 0;  // positive floats are ordered as their bits are, NaN last
    for (std::uint32_t* group = words; group < end; group += step) {
        const std::uint32_t scale = group[kGroupScale * stride];
        if (scale > most) most = scale;
    }
    const std::uint32_t range = kScaleRange * kExponent;
    const std::uint32_t unit = most > range + kExponent ? most - range : kExponent;
    [[maybe_unused]] const float units_of_one = 1.0f / float_of(unit);  // a power of two: exact
    for (std::uint32_t* group = words; group < end; group += step) {
        std::uint32_t& scale = group[kGroupScale * stride];
        if (scale < unit) {
            for (Index w = 0; w <= kGroupStart; ++w) group[w * stride] = 0;
        }
        if constexpr (Format::kHasOffset) {
            std::uint32_t& sum = group[kGroupSum * stride];
            sum = bits_of(float_of(sum) * units_of_one);
        }
        scale = scale < unit ? 0 : scale - unit;
    }
    const bool is_finite = float_of(most) == float_of(most);
    *end = is_finite ? unit : most;
}

// A part of a row rounded to elements E, filled up with zeros to whole words.
template <class E, Index kInputUnit, class X>
inline void write_elements(const typename X::Raw* x, Index width, std::uint32_t* words) {
    if (width % kInputUnit != 0) words[width / kInputUnit] = 0;
    for (Index i = 0; i < width; i += 16) {
        store_part<E>(reinterpret_cast<typename E::Raw*>(words), i, width,
                      load_part<X>(x, i, width));
    }
}

// Rows whose words are interleaved together, at most: a lane for each.
constexpr Index kTogether = 16;

// Word w of row r goes to target[w * stride + r]. Words of fewer than sixteen rows are stored with
// what lies in the other lanes, over the places of words and rows after them, which are written
// later; but nothing is stored after the last word. (Measured: with a store for each row's word,
// packing 6 to 8 rows took 1.4 to 1.8 times as long.)
inline void interleave_words(const std::uint32_t (&rows)[kTogether][kChunk], Index num_rows,
                             Index num_words, std::uint32_t* target, Index stride) {
    for (Index w = 0; w < num_words; w += 16) {
        I lanes[16];
#pragma GCC unroll 16
        for (Index r = 0; r < 16; ++r) lanes[r] = load_int(rows[r < num_rows ? r : 0] + w);
        transpose(lanes);
        const Index end = min(num_words, w + 16);
        alignas(64) std::uint32_t last[16];
#pragma GCC unroll 16
        for (Index i = 0; i < 16; ++i) {
            if (w + i >= end) break;
            std::uint32_t* const place = target + (w + i) * stride;
            if (num_rows == 16 || (num_words - w - i) * stride >= 16) {
                store_int(place, lanes[i]);
            } else {
                store_int(last, lanes[i]);
                for (Index r = 0; r < num_rows; ++r) place[r] = last[r];
            }
        }
    }
}

// The words of up to a chunk of a row, which begins with a chunk.
template <class Format, class X>
inline void write_words(const typename X::Raw* x, Index width, std::uint32_t* words) {
    if constexpr (!Format::kHasScales) {
        write_elements<ElementOf<Format::kType>, Format::kInputUnit, X>(x, width, words);
    } else if (width == kChunk) {
        write_groups<true, Format, X>(x, width, words);
    } else {
        write_groups<false, Format, X>(x, width, words);
    }
}

}  // namespace
}  // namespace inferno
