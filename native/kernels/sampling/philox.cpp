// Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11.
#include "philox.h"

namespace inferno {

double uniform(std::uint64_t seed, std::uint32_t sequence_index, std::uint32_t position,
               std::uint32_t purpose, std::uint32_t lane) {
    std::uint32_t counter[4] = {sequence_index, position, purpose, lane};
    std::uint32_t key[2] = {static_cast<std::uint32_t>(seed),
                            static_cast<std::uint32_t>(seed >> 32)};
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t first = std::uint64_t{0xD2511F53} * counter[0];
        const std::uint64_t second = std::uint64_t{0xCD9E8D57} * counter[2];
        counter[0] = static_cast<std::uint32_t>(second >> 32) ^ counter[1] ^ key[0];
        counter[2] = static_cast<std::uint32_t>(first >> 32) ^ counter[3] ^ key[1];
        counter[1] = static_cast<std::uint32_t>(second);
        counter[3] = static_cast<std::uint32_t>(first);
        key[0] += 0x9E3779B9;  // the golden ratio
        key[1] += 0xBB67AE85;  // sqrt(3) - 1
    }
    const double high = counter[0] >> 5, low = counter[1] >> 6;
    return (high * 0x1p26 + low) * 0x1p-53;
}

}  // namespace inferno
