// Candidates are picked out by a bound that rises, and then sorted.
#include "rank.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <utility>

namespace inferno {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::uint64_t key_of(float logit, std::int64_t id) {
    const float value = logit + 0.0f;  // -0 becomes 0
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const std::uint32_t descending = bits >> 31 ? bits : bits ^ 0x7fffffffu;
    return std::uint64_t{descending} << 32 | static_cast<std::uint32_t>(id);
}

std::int32_t id_of(std::uint64_t key) { return static_cast<std::int32_t>(key & 0xffffffffu); }

std::uint64_t byte_of(std::uint64_t key, int digit) { return key >> (32 + 8 * digit) & 0xff; }

// Sorts by the logit's half of each key, a byte at a time. Equals stay in order, and ids ascend
// already.
void radix_sort(std::uint64_t* keys, std::uint64_t* other, std::int64_t count) {
    std::int64_t places[4][257] = {};
    for (std::int64_t i = 0; i < count; ++i) {
        for (int digit = 0; digit < 4; ++digit) ++places[digit][byte_of(keys[i], digit) + 1];
    }
    for (int digit = 0; digit < 4; ++digit) {
        std::int64_t* place = places[digit];
        for (int byte = 0; byte < 256; ++byte) place[byte + 1] += place[byte];
        for (std::int64_t i = 0; i < count; ++i) other[place[byte_of(keys[i], digit)]++] = keys[i];
        std::swap(keys, other);
    }
}

}  // namespace

std::size_t Ranker::bytes(std::int64_t width) {
    return static_cast<std::size_t>(width) * (2 * sizeof(Key) + sizeof(std::int32_t)) +
           static_cast<std::size_t>(num_blocks(width)) * 2 * sizeof(float);
}

Ranker::Ranker(const Kernels& kernels, std::int64_t width, void* memory)
    : kernels_(kernels),
      width_(width),
      keys_(static_cast<Key*>(memory)),
      other_keys_(keys_ + width),
      ids_(reinterpret_cast<std::int32_t*>(other_keys_ + width)),
      peaks_(reinterpret_cast<float*>(ids_ + width)),
      other_peaks_(peaks_ + num_blocks(width)) {}

bool Ranker::read(const float* logits) {
    logits_ = logits;
    kernels_.find_peaks(logits, width_, peaks_);
    const auto is_nan = [](float peak) { return std::isnan(peak); };
    return std::none_of(peaks_, peaks_ + num_blocks(width_), is_nan);
}

Ranked Ranker::rank(std::int64_t count) {
    find_candidates(count > kMostCandidates ? width_ : count);
    radix_sort(keys_, other_keys_, num_keys_);
    std::transform(keys_, keys_ + count, ids_, id_of);
    return {ids_, count};
}

// Reads the blocks that may have candidates. Whenever twice as many as asked for were found, the
// lower half goes.
void Ranker::find_candidates(std::int64_t count) {
    float least = least_of_peaks(count);
    num_keys_ = 0;
    for (std::int64_t block = 0; block < num_blocks(width_); ++block) {
        if (peaks_[block] < least) continue;
        const std::int64_t first = block * kLogitBlock;
        const float* logits = logits_ + first;
        const std::int64_t size = std::min(kLogitBlock, width_ - first);
        const std::int64_t num_found = kernels_.find_at_least(logits, size, least, ids_);
        for (std::int64_t i = 0; i < num_found; ++i) {
            keys_[num_keys_++] = key_of(logits[ids_[i]], first + ids_[i]);
        }
        if (num_keys_ > 2 * count + kLogitBlock) least = keep(count);
    }
}

// A lower bound of the first `count` tokens' logits: as many blocks have a token with so much.
float Ranker::least_of_peaks(std::int64_t count) {
    const std::int64_t num_peaks = num_blocks(width_);
    if (count > num_peaks) return -kInfinity;
    std::copy(peaks_, peaks_ + num_peaks, other_peaks_);
    float* last = other_peaks_ + count - 1;
    std::nth_element(other_peaks_, last, other_peaks_ + num_peaks, std::greater<float>());
    return *last;
}

// Keeps the first `count` candidates. Returns what later ones must have to rank above the last of
// these: more than it, for an equal has a higher id.
float Ranker::keep(std::int64_t count) {
    std::copy(keys_, keys_ + num_keys_, other_keys_);
    std::nth_element(other_keys_, other_keys_ + count - 1, other_keys_ + num_keys_);
    const Key last = other_keys_[count - 1];
    std::remove_if(keys_, keys_ + num_keys_, [last](Key key) { return key > last; });
    num_keys_ = count;
    return std::nextafter(logits_[id_of(last)], kInfinity);
}

}  // namespace inferno
