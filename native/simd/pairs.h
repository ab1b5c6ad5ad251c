// Pairs of bfloat16, as dot2 multiplies them: sixteen fill a register. Here they are made of rows.
#pragma once

#include "lanes.h"

namespace inferno {
namespace {

constexpr int kWords = 32;  // 16-bit values of a register

inline I splat_pair(const std::uint16_t* p) {
    std::int32_t both;
    __builtin_memcpy(&both, p, sizeof both);
    return splat_int(both);
}

#if defined(__AVX512F__)

inline I load_words_first(const std::uint16_t* p, int n) {
    return {_mm512_maskz_loadu_epi16(static_cast<__mmask32>((std::uint64_t{1} << n) - 1), p)};
}
inline void store_int(void* p, I a) { _mm512_storeu_si512(p, a.v); }

// a0 b0 a1 b1 ... a15 b15, and the rest.
inline void interleave(I a, I b, I& low, I& high) {
    alignas(64) static constexpr std::uint16_t kLow[kWords] = {
        0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
        8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    const __m512i first = _mm512_load_si512(kLow);
    const __m512i second = _mm512_add_epi16(first, _mm512_set1_epi16(16));
    low = {_mm512_permutex2var_epi16(a.v, first, b.v)};
    high = {_mm512_permutex2var_epi16(a.v, second, b.v)};
}

// Lane i of row j becomes lane j of row i.
inline void transpose(I rows[16]) {
    __m512i pairs[16], fours[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        pairs[i] = _mm512_unpacklo_epi32(rows[i].v, rows[i + 1].v);
        pairs[i + 1] = _mm512_unpackhi_epi32(rows[i].v, rows[i + 1].v);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {  // quarter k of fours[i + c]: lane 4k + c of four rows
        fours[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
        fours[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
        fours[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
        fours[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
        const __m512i a = _mm512_shuffle_i32x4(fours[c], fours[c + 4], 0x88);
        const __m512i b = _mm512_shuffle_i32x4(fours[c + 8], fours[c + 12], 0x88);
        const __m512i d = _mm512_shuffle_i32x4(fours[c], fours[c + 4], 0xdd);
        const __m512i e = _mm512_shuffle_i32x4(fours[c + 8], fours[c + 12], 0xdd);
        rows[c] = {_mm512_shuffle_i32x4(a, b, 0x88)};
        rows[c + 4] = {_mm512_shuffle_i32x4(d, e, 0x88)};
        rows[c + 8] = {_mm512_shuffle_i32x4(a, b, 0xdd)};
        rows[c + 12] = {_mm512_shuffle_i32x4(d, e, 0xdd)};
    }
}

#else  // AVX2

inline I load_words_first(const std::uint16_t* p, int n) {
    alignas(32) std::uint16_t whole[kWords] = {};
    for (int i = 0; i < n; ++i) whole[i] = p[i];
    return load_int(whole);
}
inline void store_int(void* p, I a) {
    _mm256_storeu_si256((__m256i*)p, a.lo);
    _mm256_storeu_si256((__m256i*)p + 1, a.hi);
}

inline I interleave_half(__m256i a, __m256i b) {
    const __m256i low = _mm256_unpacklo_epi16(a, b), high = _mm256_unpackhi_epi16(a, b);
    return {_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31)};
}
inline void interleave(I a, I b, I& low, I& high) {
    low = interleave_half(a.lo, b.lo);
    high = interleave_half(a.hi, b.hi);
}

inline void transpose_quarter(__m256i rows[8]) {
    __m256i pairs[8], fours[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        pairs[i] = _mm256_unpacklo_epi32(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm256_unpackhi_epi32(rows[i], rows[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
        fours[i] = _mm256_unpacklo_epi64(pairs[i], pairs[i + 2]);
        fours[i + 1] = _mm256_unpackhi_epi64(pairs[i], pairs[i + 2]);
        fours[i + 2] = _mm256_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
        fours[i + 3] = _mm256_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
        rows[c] = _mm256_permute2x128_si256(fours[c], fours[c + 4], 0x20);
        rows[c + 4] = _mm256_permute2x128_si256(fours[c], fours[c + 4], 0x31);
    }
}

inline void transpose(I rows[16]) {
    __m256i quarters[4][8];
    for (int i = 0; i < 8; ++i) {
        quarters[0][i] = rows[i].lo;
        quarters[1][i] = rows[i + 8].lo;
        quarters[2][i] = rows[i].hi;
        quarters[3][i] = rows[i + 8].hi;
    }
    for (int q = 0; q < 4; ++q) transpose_quarter(quarters[q]);
    for (int i = 0; i < 8; ++i) {
        rows[i] = {quarters[0][i], quarters[1][i]};
        rows[i + 8] = {quarters[2][i], quarters[3][i]};
    }
}

#endif

}  // namespace
}  // namespace inferno
