// XXH64: four sums over stripes of 32 bytes, then the rest, then a mix.
#include "checksum.h"

#include <cstring>

namespace inferno {
namespace {

constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87u;
constexpr std::uint64_t kPrime2 = 0xC2B2AE3D27D4EB4Fu;
constexpr std::uint64_t kPrime3 = 0x165667B19E3779F9u;
constexpr std::uint64_t kPrime4 = 0x85EBCA77C2B2AE63u;
constexpr std::uint64_t kPrime5 = 0x27D4EB2F165667C5u;

std::uint64_t rotate(std::uint64_t x, int bits) { return x << bits | x >> (64 - bits); }

template <class T>
T read(const unsigned char* p) {
    T value;
    std::memcpy(&value, p, sizeof value);
    return value;
}

std::uint64_t round(std::uint64_t sum, std::uint64_t lane) {
    return rotate(sum + lane * kPrime2, 31) * kPrime1;
}

std::uint64_t merge(std::uint64_t hash, std::uint64_t sum) {
    return (hash ^ round(0, sum)) * kPrime1 + kPrime4;
}

}  // namespace

std::uint64_t xxh64(const void* data, std::size_t bytes) {
    const auto* p = static_cast<const unsigned char*>(data);
    const unsigned char* const end = p + bytes;
    std::uint64_t hash = kPrime5;
    if (bytes >= 32) {
        std::uint64_t sums[4] = {kPrime1 + kPrime2, kPrime2, 0, 0 - kPrime1};
        for (; end - p >= 32; p += 32) {
            for (int i = 0; i < 4; ++i) sums[i] = round(sums[i], read<std::uint64_t>(p + 8 * i));
        }
        hash = rotate(sums[0], 1) + rotate(sums[1], 7) + rotate(sums[2], 12) + rotate(sums[3], 18);
        for (std::uint64_t sum : sums) hash = merge(hash, sum);
    }
    hash += bytes;
    for (; end - p >= 8; p += 8) {
        hash = rotate(hash ^ round(0, read<std::uint64_t>(p)), 27) * kPrime1 + kPrime4;
    }
    for (; end - p >= 4; p += 4) {
        hash = rotate(hash ^ read<std::uint32_t>(p) * kPrime1, 23) * kPrime2 + kPrime3;
    }
    for (; p != end; ++p) hash = rotate(hash ^ *p * kPrime5, 11) * kPrime1;
    hash = (hash ^ hash >> 33) * kPrime2;
    hash = (hash ^ hash >> 29) * kPrime3;
    return hash ^ hash >> 32;
}

}  // namespace inferno
