// Sixteen vectors reduced at once: what one lane after another of each comes to. Half the shuffles
// that sixteen reductions of their own would take.
#pragma once

#include "lanes.h"

namespace inferno {
namespace {

#if defined(__AVX512F__)

inline I max_int(I a, I b) { return {_mm512_max_epi32(a.v, b.v)}; }

// Lane i of the result: `op` of all lanes of vector i, in any order.
template <class Op>
inline I across(const I (&vectors)[16], Op&& op) {
    I twos[8], fours[4], eights[2];  // how many vectors share a register
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
        const __m512i a = vectors[2 * i].v, b = vectors[2 * i + 1].v;
        twos[i] = op(I{_mm512_unpacklo_epi32(a, b)}, I{_mm512_unpackhi_epi32(a, b)});
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        const __m512i a = twos[2 * i].v, b = twos[2 * i + 1].v;
        fours[i] = op(I{_mm512_unpacklo_epi64(a, b)}, I{_mm512_unpackhi_epi64(a, b)});
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
        const __m512i a = fours[2 * i].v, b = fours[2 * i + 1].v;
        eights[i] = op(I{_mm512_shuffle_i32x4(a, b, 0x88)}, I{_mm512_shuffle_i32x4(a, b, 0xdd)});
    }
    const __m512i a = eights[0].v, b = eights[1].v;
    return op(I{_mm512_shuffle_i32x4(a, b, 0x88)}, I{_mm512_shuffle_i32x4(a, b, 0xdd)});
}

#else

inline I max_int(I a, I b) { return {_mm256_max_epi32(a.lo, b.lo), _mm256_max_epi32(a.hi, b.hi)}; }

// Here the two registers of a vector are reduced to one first; `op` sees it twice.
template <class Op>
inline __m256i across_eight(const I* vectors, Op&& op) {
    const auto half = [&](__m256i a, __m256i b) { return op(I{a, a}, I{b, b}).lo; };
    __m256i ones[8], twos[4], fours[2];
    for (int i = 0; i < 8; ++i) ones[i] = half(vectors[i].lo, vectors[i].hi);
    for (int i = 0; i < 4; ++i) {
        const __m256i a = ones[2 * i], b = ones[2 * i + 1];
        twos[i] = half(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    }
    for (int i = 0; i < 2; ++i) {
        const __m256i a = twos[2 * i], b = twos[2 * i + 1];
        fours[i] = half(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    }
    return half(_mm256_permute2x128_si256(fours[0], fours[1], 0x20),
                _mm256_permute2x128_si256(fours[0], fours[1], 0x31));
}

template <class Op>
inline I across(const I (&vectors)[16], Op&& op) {
    return {across_eight(vectors, op), across_eight(vectors + 8, op)};
}

#endif

}  // namespace
}  // namespace inferno
