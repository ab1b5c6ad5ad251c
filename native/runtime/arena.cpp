// The arena's gaps: found, split and joined.
#include "arena.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace inferno {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kSmallestSlab = std::size_t{256} << 20;  // untouched pages cost nothing
constexpr std::size_t kPage = std::size_t{64} << 10;  // no system's is larger
constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t rounded(std::size_t bytes) {
    return std::max(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
}

// On huge pages where the system has them: rows of long prompts are more than the processor's table
// of pages holds.
void* large_memory(std::size_t bytes) {
    void* memory = std::aligned_alloc(kHugePage, bytes);
#if defined(__linux__)
    if (memory) madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    return memory;
}

}  // namespace

Arena::~Arena() {
    for (void* slab : slabs_) std::free(slab);
}

void* Arena::take(std::size_t bytes) {
    bytes = rounded(bytes);
    std::lock_guard<std::mutex> lock(mutex_);
    // What is given back may become a gap of its own, and giving back must not fail.
    const std::size_t most_gaps = slabs_.size() + 1 + num_lent_ + 1;
    if (gaps_.capacity() < most_gaps) gaps_.reserve(2 * most_gaps);
    auto fits = [&](const Gap& gap) { return gap.bytes >= bytes; };
    auto gap = std::find_if(gaps_.begin(), gaps_.end(), fits);
    if (gap == gaps_.end()) {
        add_slab(bytes);
        gap = std::find_if(gaps_.begin(), gaps_.end(), fits);
    }
    void* memory = gap->begin;
    gap->begin += bytes;
    gap->bytes -= bytes;
    if (gap->bytes == 0) gaps_.erase(gap);
    ++num_lent_;
    return memory;
}

void Arena::give_back(void* memory, std::size_t bytes) noexcept {
    bytes = rounded(bytes);
    char* begin = static_cast<char*>(memory);
    std::lock_guard<std::mutex> lock(mutex_);
    --num_lent_;
    auto next = std::lower_bound(gaps_.begin(), gaps_.end(), begin,
                                 [](const Gap& gap, char* at) { return gap.begin < at; });
    if (next != gaps_.end() && begin + bytes == next->begin) {
        next->begin = begin;
        next->bytes += bytes;
    } else {
        next = gaps_.insert(next, Gap{begin, bytes});
    }
    if (next == gaps_.begin()) return;
    auto previous = next - 1;
    if (previous->begin + previous->bytes == next->begin) {
        previous->bytes += next->bytes;
        gaps_.erase(next);
    }
}

void Arena::release() noexcept {
#if defined(__linux__)
    std::lock_guard<std::mutex> lock(mutex_);
    for (const Gap& gap : gaps_) {
        const auto begin = reinterpret_cast<std::uintptr_t>(gap.begin);
        const std::uintptr_t first = (begin + kPage - 1) / kPage * kPage;
        const std::uintptr_t end = (begin + gap.bytes) / kPage * kPage;
        if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
    }
#endif
}

std::size_t Arena::size() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return size_;
}

// Slabs are large, so that there are few, and what was touched stays dense. Gaps of slabs that happen
// to touch may be joined: both live as long as the arena.
void Arena::add_slab(std::size_t bytes) {
    slabs_.reserve(slabs_.size() + 1);
    const std::size_t whole = std::max(bytes, kSmallestSlab) + kHugePage - 1;
    std::size_t wanted = whole / kHugePage * kHugePage;
    char* slab = static_cast<char*>(large_memory(wanted));
    if (!slab) {  // a process may be denied what it would not touch
        wanted = rounded(bytes);
        slab = static_cast<char*>(std::aligned_alloc(kAlignment, wanted));
    }
    if (!slab) throw std::bad_alloc();
    slabs_.push_back(slab);
    size_ += wanted;
    auto place = std::lower_bound(gaps_.begin(), gaps_.end(), slab,
                                  [](const Gap& gap, char* at) { return gap.begin < at; });
    gaps_.insert(place, Gap{slab, wanted});
}

}  // namespace inferno
