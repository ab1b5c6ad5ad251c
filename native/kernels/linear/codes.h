// Codes and scales of packed weights, as vectors of 16 outputs that a tile multiplies.
#pragma once

#include "contract/packings.h"
#include "simd/bytes.h"
#include "simd/elements.h"

namespace inferno {
namespace {

// For the parts of a tile: a call would send its registers through memory. (Measured: products of
// 8 to 511 rows take 3 to 20 % less, most in formats of five bits with offsets.)
#define INFERNO_INLINE [[gnu::always_inline]] inline

constexpr Index kVector = 64;  // bytes of a weight vector: 16 outputs, 4 bytes each

// Where dots are made of words, a few bits' zero point is taken off them while they are words: that
// keeps a scale group's sums, or a half's, within 16 bits.
template <class Format>
constexpr bool kHasWordStarts =
    !INFERNO_HAS_BYTE_DOTS && !Format::kHasOffset && Format::kLargestByte < 128;

// There halves' scales are multiplied as whole numbers, in place of the ones that words are added by.
template <class Format>
constexpr bool kHasWholeHalves = Format::kHasHalves && kHasWordStarts<Format>;

// Whether codes of eight bits are taken apart into magnitudes and signs (group_dots.h).
template <class Format>
constexpr bool kHasSigns = false;

inline I low_nibbles(I bytes) { return bit_and(bytes, splat_int(0x0f0f0f0f)); }

template <class Format>
constexpr char codebook_byte(int code) {
    return static_cast<char>(Format::kCodebook[code] + Format::kZeroPoint);
}

template <class Format>
inline I look_up_codes(I codes) {
    const __m128i bytes = _mm_setr_epi8(
        codebook_byte<Format>(0), codebook_byte<Format>(1), codebook_byte<Format>(2),
        codebook_byte<Format>(3), codebook_byte<Format>(4), codebook_byte<Format>(5),
        codebook_byte<Format>(6), codebook_byte<Format>(7), codebook_byte<Format>(8),
        codebook_byte<Format>(9), codebook_byte<Format>(10), codebook_byte<Format>(11),
        codebook_byte<Format>(12), codebook_byte<Format>(13), codebook_byte<Format>(14),
        codebook_byte<Format>(15));
    return look_up(bytes, codes);
}

template <class Format>
struct Codes {
    // Of a scale group.
    static constexpr Index kBytes =
        kHasSigns<Format> ? 17 * kVector : kScaleGroup * kPanel * Format::kBits / 8;

    // Vectors 2 `pair` and 2 `pair` + 1 of a scale group, as unsigned bytes.
    INFERNO_INLINE static void load(const char* group, int pair, I& first, I& second) {
        if constexpr (Format::kBits == 8) {
            first = load_int_aligned(group + 2 * pair * kVector);
            second = load_int_aligned(group + (2 * pair + 1) * kVector);
        } else {
            static_assert(Format::kBits >= 4 && Format::kBits <= 6);
            const I both = load_int_aligned(group + pair * kVector);
            first = low_nibbles(both);
            second = low_nibbles(shift_right<4>(both));
        }
        if constexpr (Format::kBits == 5) add_fifth_bits(group, pair, first, second);
        if constexpr (Format::kBits == 6) add_upper_bits(group, pair, first, second);
        if constexpr (Format::kHasCodebook) {
            first = look_up_codes<Format>(first);
            second = look_up_codes<Format>(second);
        }
    }

   private:
    // Loops over pairs are unrolled, so that a shift is by a constant.
    INFERNO_INLINE static void add_fifth_bits(const char* group, int pair, I& first, I& second) {
        const I bits = load_int_aligned(group + 4 * kVector);
        const I mask = splat_int(0x10101010);
        switch (pair) {
            case 0:
                first = add_int(first, bit_and(shift_left<4>(bits), mask));
                second = add_int(second, bit_and(shift_left<3>(bits), mask));
                break;
            case 1:
                first = add_int(first, bit_and(shift_left<2>(bits), mask));
                second = add_int(second, bit_and(shift_left<1>(bits), mask));
                break;
            case 2:
                first = add_int(first, bit_and(bits, mask));
                second = add_int(second, bit_and(shift_right<1>(bits), mask));
                break;
            default:
                first = add_int(first, bit_and(shift_right<2>(bits), mask));
                second = add_int(second, bit_and(shift_right<3>(bits), mask));
        }
    }

    INFERNO_INLINE static void add_upper_bits(const char* group, int pair, I& first, I& second) {
        const I bits = load_int_aligned(group + (4 + pair / 2) * kVector);
        const I mask = splat_int(0x30303030);
        if (pair % 2 == 0) {
            first = add_int(first, bit_and(shift_left<4>(bits), mask));
            second = add_int(second, bit_and(shift_left<2>(bits), mask));
        } else {
            first = add_int(first, bit_and(bits, mask));
            second = add_int(second, bit_and(shift_right<2>(bits), mask));
        }
    }
};

// Sixteen outputs' scales of a scale group, its halves' scales, or its offset, given its panel's.
// Groups are read in their order, each begun with `begin` (Scales).
template <ScaleType type>
struct ScaleVector;

template <>
struct ScaleVector<ScaleType::bf16> {
    static F load(const char* scales, Index group) {
        return load_bf16(reinterpret_cast<const std::uint16_t*>(scales) + group * kPanel);
    }
};

template <>
struct ScaleVector<ScaleType::e8m0> {
    // The byte is a float's exponent, but for 0, a denormal, and 255, NaN.
    static F load(const char* scales, Index group) {
        const I codes = load_u8(reinterpret_cast<const std::uint8_t*>(scales) + group * kPanel);
        const F power = max(as_float(shift_left<23>(codes)), as_float(splat_int(0x00400000)));
        return add(power, sub(power, power));
    }
};

template <>
struct ScaleVector<ScaleType::f16> {
    static F load(const char* scales, Index group) {
        return load_f16(reinterpret_cast<const std::uint16_t*>(scales) + group * kPanel);
    }
};

template <>
struct ScaleVector<ScaleType::f16_offset> {
    static F load(const char* scales, Index group) { return at(scales, 2 * group); }
    static F load_offset(const char* scales, Index group) { return at(scales, 2 * group + 1); }

   private:
    static F at(const char* scales, Index nth) {
        return load_f16(reinterpret_cast<const std::uint16_t*>(scales) + nth * kPanel);
    }
};

template <>
struct ScaleVector<ScaleType::float_pair> {
    static F load(const char* scales, Index group, Index half = 0) {
        return inferno::load(reinterpret_cast<const float*>(scales) + (2 * group + half) * kPanel);
    }
    static F load_offset(const char* scales, Index group) { return load(scales, group, 1); }
};

// The next two keep the units of the eight groups that they are among. Products with them are exact:
// of 11 bits and of 6 or 8.
template <>
struct ScaleVector<ScaleType::six_bit_offset> {
    const std::uint8_t* bytes;
    F unit, offset_unit;

    INFERNO_INLINE void enter(const char* scales, Index group) {
        const char* eight =
            scales + group / 8 * (kPanel * size_of(ScaleType::six_bit_offset));
        const auto* units = reinterpret_cast<const std::uint16_t*>(eight);
        unit = load_f16(units);
        offset_unit = load_f16(units + kPanel);
        bytes = reinterpret_cast<const std::uint8_t*>(units + 2 * kPanel);
    }

    INFERNO_INLINE F load(const char*, Index group) const {
        return mul(unit, to_float(bit_and(load_u8(bytes + group % 8 * kPanel), splat_int(63))));
    }

    INFERNO_INLINE F load_offset(const char*, Index group) const {
        const I low = shift_right<6>(load_u8(bytes + group % 8 * kPanel));
        const I pair = load_u8(bytes + (8 + group % 8 / 2) * kPanel);
        const I high = group % 2 ? bit_and(shift_right<2>(pair), splat_int(60))
                                 : bit_and(shift_left<2>(pair), splat_int(60));
        return mul(offset_unit, to_float(add_int(low, high)));
    }
};

template <>
struct ScaleVector<ScaleType::halves> {
    const std::int8_t* bytes;
    F unit;

    INFERNO_INLINE void enter(const char* scales, Index group) {
        const char* eight = scales + group / 8 * (kPanel * size_of(ScaleType::halves));
        unit = load_f16(reinterpret_cast<const std::uint16_t*>(eight));
        bytes = reinterpret_cast<const std::int8_t*>(eight) + 2 * kPanel;
    }

    INFERNO_INLINE const std::int8_t* half_at(Index group, Index half) const {
        return bytes + (group % 8 * 2 + half) * kPanel;
    }
    INFERNO_INLINE F load(const char*, Index group, Index half) const {
        return mul(unit, load_i8(half_at(group, half)));
    }
    F load_unit(const char*, Index) const { return unit; }
    // Without the unit, in both words of each lane.
    INFERNO_INLINE I load_words(const char*, Index group, Index half) const {
        const I scale = widen_i8(half_at(group, half));
        return add_int(bit_and(scale, splat_int(0xffff)), shift_left<16>(scale));
    }
};

template <>
struct ScaleVector<ScaleType::word_pair> {
    static F load_unit(const char* scales, Index group) {
        return load(reinterpret_cast<const float*>(scales) + (3 * group + 2) * kPanel);
    }
    static I load_words(const char* scales, Index group, Index half) {
        return load_int_aligned(scales + (3 * group + half) * kVector);
    }
};

template <class Format>
struct Scales : ScaleVector<Format::kScaleType> {
    static constexpr bool kAreEights = groups_of(Format::kScaleType) == 8;

    // Of so many scale groups of a panel, all that have theirs together.
    static constexpr Index bytes_of(Index num_groups) {
        return num_groups / groups_of(Format::kScaleType) * kPanel * size_of(Format::kScaleType);
    }

    // To be called before a scale group's are loaded: what it shares with others is read here.
    void begin(const char* scales, Index group, bool is_first) {
        if constexpr (kAreEights) {
            if (is_first || group % 8 == 0) this->enter(scales, group);
        }
    }
};

// How the dots of a scale group are added to sums, given the weights' scales and a word of the
// row's (packed_activations.h).
template <bool has_row_unit>
struct ActivationScale;

template <>
struct ActivationScale<false> {
    F factor;
    explicit ActivationScale(std::int32_t word) : factor(as_float(splat_int(word))) {}
    F add_to(F sum, I dots, F scale) const { return fma(to_float(dots), mul(scale, factor), sum); }
    // Those of both halves of a scale group.
    F add_to(F sum, I dots, F scale, I more_dots, F more_scale) const {
        return fma(fma(to_float(more_dots), more_scale, mul(to_float(dots), scale)), factor, sum);
    }
};

// The exponent of 0 grows too, but 2^-127 of the row's unit is nothing to any sum.
template <>
struct ActivationScale<true> {
    I above;
    explicit ActivationScale(std::int32_t word) : above(splat_int(word)) {}
    F add_to(F sum, I dots, F scale) const {
        return fma(as_float(add_int(as_int(to_float(dots)), above)), scale, sum);
    }
};

// A row's sums in units of 1. `last` is where the row's last word lies, which may be a unit.
template <class Format>
inline F in_units(F sum, const std::uint32_t* last) {
    if constexpr (Format::kHasRowUnit) {
        sum = mul(sum, as_float(splat_int(static_cast<std::int32_t>(*last))));
    }
    if constexpr (Format::kUnit != 1.0f) sum = mul(sum, splat(Format::kUnit));
    return sum;
}

// The elements of a weight of floats, and of what is multiplied with it.
template <Type type>
struct ElementOf;

template <>
struct ElementOf<Type::f32> : F32 {
    static F dot(F sum, I weight, I x) { return fma(as_float(x), as_float(weight), sum); }
};

template <>
struct ElementOf<Type::bf16> : BF16 {
    static F dot(F sum, I weight, I x) { return dot2(sum, weight, x); }
};

}  // namespace
}  // namespace inferno
