// The dots of a scale group of weights and rows of activations, exact in int32.
//
// They are the same whichever instructions there are: one for dots of four bytes, or those that it is
// made of.
#pragma once

#include "packed_activations.h"
#include "simd/bytes.h"

namespace inferno {
namespace {

#define INFERNO_UNROLL _Pragma("GCC unroll 24")

inline I word_of(const std::uint32_t* x) { return splat_int(static_cast<std::int32_t>(*x)); }

// What dots start with: what undoes the zero point, or nothing beside offsets.
template <class Format>
inline I start_of(const std::uint32_t* x) {
    return Format::kHasOffset ? splat_int(0) : word_of(x);
}

// Halves of scale groups: the dots of one, where there are dots of bytes, or those of both, each
// times its scale, where they are made of words (kHasWholeHalves).
template <class Format, int R, int P>
void part_dots(const std::uint32_t* x, const char* codes, Index codes_stride, int first_pair,
               int num_pairs, Index start, I (&dots)[R][P]);
template <class Format, int R, int P>
void scaled_dots(const std::uint32_t* x, const char* codes, Index codes_stride,
                 const I (&scales)[2][P], I (&dots)[R][P]);

// Takes eight bits' codes of a panel's scale group apart, where dots are made of words (kHasSigns).
template <class Format>
void unpack_signs(const char* codes, char* out);

// Weight vectors 2 `pair` and 2 `pair` + 1 of each panel's scale group.
template <class Format, int P>
INFERNO_INLINE void load_pair(const char* codes, Index codes_stride, int pair, I (&first)[P],
                              I (&second)[P]) {
    INFERNO_UNROLL
    for (int p = 0; p < P; ++p) {
        Codes<Format>::load(codes + p * codes_stride, pair, first[p], second[p]);
    }
}

#if INFERNO_HAS_BYTE_DOTS

template <int R, int P>
INFERNO_INLINE void add_word(const std::uint32_t* x, const I (&weight)[P], I (&dots)[R][P]) {
    INFERNO_UNROLL
    for (int r = 0; r < R; ++r) {
        const I word = word_of(x + r);
        INFERNO_UNROLL
        for (int p = 0; p < P; ++p) dots[r][p] = dot4(dots[r][p], weight[p], word);
    }
}

// The dots of pairs of weight vectors from `first_pair` on, of one scale group or of a half of it,
// begun with word `start`.
template <class Format, int R, int P>
INFERNO_INLINE void part_dots(const std::uint32_t* x, const char* codes, Index codes_stride,
                              int first_pair, int num_pairs, Index start, I (&dots)[R][P]) {
    INFERNO_UNROLL
    for (int i = 0; i < R * P; ++i) dots[i / P][i % P] = start_of<Format>(x + start * R + i / P);
    INFERNO_UNROLL
    for (int pair = first_pair; pair < first_pair + num_pairs; ++pair) {
        I first[P], second[P];
        load_pair<Format>(codes, codes_stride, pair, first, second);
        add_word(x + 2 * pair * R, first, dots);
        add_word(x + (2 * pair + 1) * R, second, dots);
    }
}

template <class Format, int R, int P>
INFERNO_INLINE void group_dots(const std::uint32_t* x, const char* codes, Index codes_stride,
                               I (&dots)[R][P]) {
    part_dots<Format>(x, codes, codes_stride, 0, 4, kGroupStart, dots);
}

#else

// How many products of codes and activations fit into a sum of 16 bits, in pairs of weight vectors:
// a lane has two products of each vector.
template <class Format>
constexpr int kPairsTogether =
    kHasWordStarts<Format> ? 4 : 32767 / (4 * 127 * Format::kLargestByte);

// Sums of words that begin with what undoes the zero point may leave 16 bits on the way, as long as
// they come back: in the end they are of whole numbers.
template <class Format>
constexpr bool fit_words(int num_vectors) {
    const int most = max(Format::kZeroPoint, Format::kLargestByte - Format::kZeroPoint);
    return 2 * num_vectors * 127 * most <= 32767;
}

template <int R, int P>
INFERNO_INLINE void add_small_word(const std::uint32_t* x, const I (&weight)[P], bool is_first,
                                   I (&sums)[R][P]) {
    INFERNO_UNROLL
    for (int r = 0; r < R; ++r) {
        const I word = word_of(x + r);
        INFERNO_UNROLL
        for (int p = 0; p < P; ++p) {
            const I products = multiply_bytes(weight[p], word);
            sums[r][p] = is_first ? products : add_words(sums[r][p], products);
            settle(sums[r][p]);
        }
    }
}

// Words of weight vectors from 2 `first_pair` on, begun with word `start`, or with nothing (-1).
template <class Format, int R, int P>
INFERNO_INLINE void small_words(const std::uint32_t* x, const char* codes, Index codes_stride,
                                int first_pair, int num_pairs, int start, I (&sums)[R][P]) {
    INFERNO_UNROLL
    for (int i = 0; start >= 0 && i < R * P; ++i) {
        sums[i / P][i % P] = word_of(x + start * R + i / P);
    }
    INFERNO_UNROLL
    for (int pair = first_pair; pair < first_pair + num_pairs; ++pair) {
        I first[P], second[P];
        load_pair<Format>(codes, codes_stride, pair, first, second);
        add_small_word(x + 2 * pair * R, first, start < 0 && pair == first_pair, sums);
        add_small_word(x + (2 * pair + 1) * R, second, false, sums);
    }
}

// Codes of a few bits: products are added in 16 bits as long as they fit.
template <class Format, int R, int P>
INFERNO_INLINE void small_dots(const std::uint32_t* x, const char* codes, Index codes_stride,
                               I (&dots)[R][P]) {
    static_assert(!kHasWordStarts<Format> || Format::kHasHalves || fit_words<Format>(8));
    constexpr int kTogether = kPairsTogether<Format>;
    INFERNO_UNROLL
    for (int pair = 0; pair < 4; pair += kTogether) {
        I sums[R][P];
        small_words<Format>(x, codes, codes_stride, pair, kTogether,
                            kHasWordStarts<Format> ? kGroupStart : -1, sums);
        INFERNO_UNROLL
        for (int i = 0; i < R * P; ++i) {
            dots[i / P][i % P] = add_pairs(dots[i / P][i % P], sums[i / P][i % P]);
        }
    }
}

// The dots of both halves, each times its scale: less than 2^24, so that they are exact as floats.
template <class Format, int R, int P>
INFERNO_INLINE void scaled_dots(const std::uint32_t* x, const char* codes, Index codes_stride,
                                const I (&scales)[2][P], I (&dots)[R][P]) {
    static_assert(fit_words<Format>(4));
    INFERNO_UNROLL
    for (int half = 0; half < 2; ++half) {
        I sums[R][P];
        small_words<Format>(x, codes, codes_stride, 2 * half, 2,
                            half ? kSecondStart : kGroupStart, sums);
        INFERNO_UNROLL
        for (int i = 0; i < R * P; ++i) {
            const I products = multiply_words(sums[i / P][i % P], scales[half][i % P]);
            dots[i / P][i % P] = half ? add_int(dots[i / P][i % P], products) : products;
        }
    }
}

template <int R, int P>
INFERNO_INLINE void add_signed_word(const std::uint32_t* x, const I (&bytes)[P], I (&dots)[R][P]) {
    I weight[P], magnitude[P];
    INFERNO_UNROLL
    for (int p = 0; p < P; ++p) {
        weight[p] = less_128(bytes[p]);
        magnitude[p] = magnitude_of_bytes(weight[p]);
    }
    INFERNO_UNROLL
    for (int r = 0; r < R; ++r) {
        const I word = word_of(x + r);
        INFERNO_UNROLL
        for (int p = 0; p < P; ++p) {
            const I products = multiply_bytes(magnitude[p], with_signs_of(weight[p], word));
            dots[r][p] = add_pairs(dots[r][p], products);
            settle(dots[r][p]);
        }
    }
}

// Codes of eight bits: a pair's products fit into 16 bits once the zero point is taken off, for
// activations are -127 to 127. Theirs become the signs that weights had.
template <class Format, int R, int P>
INFERNO_INLINE void signed_dots(const std::uint32_t* x, const char* codes, Index codes_stride,
                                I (&dots)[R][P]) {
    INFERNO_UNROLL
    for (int pair = 0; pair < 4; ++pair) {
        I first[P], second[P];
        load_pair<Format>(codes, codes_stride, pair, first, second);
        add_signed_word(x + 2 * pair * R, first, dots);
        add_signed_word(x + (2 * pair + 1) * R, second, dots);
    }
}

// Each weight vector's magnitudes and, behind them, all bits of those bytes that are negative; at last
// the sums of the negative ones' magnitudes.
template <class Format>
INFERNO_INLINE void unpack_signs(const char* codes, char* out) {
    I negative = splat_int(0);  // in words
    INFERNO_UNROLL
    for (int w = 0; w < 8; ++w, out += 2 * kVector) {
        const I weight = less_128(load_int_aligned(codes + w * kVector));
        const I magnitude = magnitude_of_bytes(weight), flips = sign_masks_of_bytes(weight);
        store_int(out, magnitude);
        store_int(out + kVector, flips);
        negative = add_words(negative, multiply_bytes(magnitude, flips));
    }
    store_int(out, multiply_words(negative, splat_int(-1)));
}

// Where a weight is negative, its activation's bits are flipped, which makes -x - 1 of it, and dots
// begin with what is missing. (Measured on a Zen 3, 32 to 512 rows: 4 to 12 % faster than signs.)
template <class Format, int R, int P>
INFERNO_INLINE void flipped_dots(const std::uint32_t* x, const char* codes, Index codes_stride,
                                 I (&dots)[R][P]) {
    INFERNO_UNROLL
    for (int i = 0; i < R * P; ++i) {
        const char* const start = codes + i % P * codes_stride + 16 * kVector;
        dots[i / P][i % P] = load_int_aligned(start);
    }
    INFERNO_UNROLL
    for (int w = 0; w < 8; ++w) {
        I magnitude[P], flips[P];
        INFERNO_UNROLL
        for (int p = 0; p < P; ++p) {
            magnitude[p] = load_int_aligned(codes + p * codes_stride + 2 * w * kVector);
            flips[p] = load_int_aligned(codes + p * codes_stride + (2 * w + 1) * kVector);
        }
        INFERNO_UNROLL
        for (int r = 0; r < R; ++r) {
            const I word = word_of(x + w * R + r);
            INFERNO_UNROLL
            for (int p = 0; p < P; ++p) {
                const I products = multiply_bytes(magnitude[p], bit_xor(word, flips[p]));
                dots[r][p] = add_pairs(dots[r][p], products);
                settle(dots[r][p]);
            }
        }
    }
}

template <class Format, int R, int P>
INFERNO_INLINE void group_dots(const std::uint32_t* x, const char* codes, Index codes_stride,
                               I (&dots)[R][P]) {
    if constexpr (kHasSigns<Format>) {
        return flipped_dots<Format>(x, codes, codes_stride, dots);
    }
    constexpr bool kIsSmall = Format::kLargestByte < 128;
    static_assert(kIsSmall || (Format::kZeroPoint == 128 && !Format::kHasOffset));
    INFERNO_UNROLL
    for (int i = 0; i < R * P; ++i) dots[i / P][i % P] = splat_int(0);
    if constexpr (kIsSmall) {
        small_dots<Format>(x, codes, codes_stride, dots);
    } else {
        signed_dots<Format>(x, codes, codes_stride, dots);
    }
}

#endif

}  // namespace
}  // namespace inferno
