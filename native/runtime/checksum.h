// XXH64, a fast checksum: finds damage, not forgery.
#pragma once

#include <cstddef>
#include <cstdint>

namespace inferno {

// XXH64, by its specification (github.com/Cyan4973/xxHash, doc/xxhash_spec.md), with seed 0.
std::uint64_t xxh64(const void* data, std::size_t bytes);

}  // namespace inferno
