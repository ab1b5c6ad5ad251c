// Products of unsigned bytes and signed ones, as tiles of codes sum them: whole dots of four, where
// the processor has an instruction for them, or what they are made of.
#pragma once

#include "lanes.h"

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
#define INFERNO_HAS_BYTE_DOTS 1
#else
#define INFERNO_HAS_BYTE_DOTS 0
#endif

namespace inferno {
namespace {

#if INFERNO_HAS_BYTE_DOTS

// Each lane: acc + the four products of unsigned bytes `a` and signed bytes `b`, exactly.
inline I dot4(I acc, I a, I b) {
#if defined(__AVX512F__)
    return {_mm512_dpbusd_epi32(acc.v, a.v, b.v)};
#else
    return {_mm256_dpbusd_avx_epi32(acc.lo, a.lo, b.lo),
            _mm256_dpbusd_avx_epi32(acc.hi, a.hi, b.hi)};
#endif
}

#if defined(__AVX512F__)
// The same with the four signed bytes at `b` in each lane. Compilers load them into a register first,
// one more for each dot. (Measured with GCC 12 on a Zen 4: tiles of 8 rows take 2 to 7 % longer so.)
inline I dot4(I acc, I a, const std::uint32_t* b) {
    asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc.v) : "v"(a.v), "m"(*b));
    return acc;
}
#endif

#elif defined(__AVX512F__)

// Lanes of 16 bits: the sums of two products of unsigned bytes `a` and signed bytes `b`, which must
// fit.
inline I multiply_bytes(I a, I b) { return {_mm512_maddubs_epi16(a.v, b.v)}; }
inline I add_words(I a, I b) { return {_mm512_add_epi16(a.v, b.v)}; }
// Each lane: the sum of the two words of `a`, each times that of `b`.
inline I multiply_words(I a, I b) { return {_mm512_madd_epi16(a.v, b.v)}; }
inline I less_128(I bytes) { return {_mm512_xor_si512(bytes.v, _mm512_set1_epi8(-128))}; }
inline I magnitude_of_bytes(I a) { return {_mm512_abs_epi8(a.v)}; }
// Byte by byte: -b where a is negative, b where it is positive. Where a is 0, either of these or 0.
inline I with_signs_of(I a, I b) {
    return {_mm512_mask_sub_epi8(b.v, _mm512_movepi8_mask(a.v), _mm512_setzero_si512(), b.v)};
}
// Byte by byte: all bits where a is negative, none where it isn't.
inline I sign_masks_of_bytes(I a) { return {_mm512_movm_epi8(_mm512_movepi8_mask(a.v))}; }

#else  // AVX2

inline I multiply_bytes(I a, I b) {
    return {_mm256_maddubs_epi16(a.lo, b.lo), _mm256_maddubs_epi16(a.hi, b.hi)};
}
inline I add_words(I a, I b) {
    return {_mm256_add_epi16(a.lo, b.lo), _mm256_add_epi16(a.hi, b.hi)};
}
inline I multiply_words(I a, I b) {
    return {_mm256_madd_epi16(a.lo, b.lo), _mm256_madd_epi16(a.hi, b.hi)};
}
inline I less_128(I bytes) {
    const __m256i top = _mm256_set1_epi8(-128);
    return {_mm256_xor_si256(bytes.lo, top), _mm256_xor_si256(bytes.hi, top)};
}
inline I magnitude_of_bytes(I a) { return {_mm256_abs_epi8(a.lo), _mm256_abs_epi8(a.hi)}; }
inline I with_signs_of(I a, I b) {
    return {_mm256_sign_epi8(b.lo, a.lo), _mm256_sign_epi8(b.hi, a.hi)};
}
inline I sign_masks_of_bytes(I a) {
    const __m256i nothing = _mm256_setzero_si256();
    return {_mm256_cmpgt_epi8(nothing, a.lo), _mm256_cmpgt_epi8(nothing, a.hi)};
}

#endif

#if !INFERNO_HAS_BYTE_DOTS
// Each lane: acc + the two words of `a`.
inline I add_pairs(I acc, I a) {
    return add_int(acc, multiply_words(a, splat_int(0x00010001)));
}
#endif

}  // namespace
}  // namespace inferno
