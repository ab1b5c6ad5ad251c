// The system's own ways to make pages ready or larger, and touching them where it has none.
#include "prefault.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <system_error>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#include <sys/resource.h>
#endif

namespace inferno {
namespace {

constexpr std::size_t kPiece = std::size_t{2} << 20;  // a huge page
constexpr std::size_t kPage = 4096;

// A short prompt's first token comes within this time. The system maps pages of one thread of a
// process at a time: a token that waited for its turns took up to 0.2 s more.
constexpr std::chrono::milliseconds kPause{300}, kLook{5};

// The engine's threads go first. Not the lowest priority: a thread that holds a lock of the system
// should not wait for long.
void give_way() {
#if defined(__linux__)
    setpriority(PRIO_PROCESS, 0, 10);  // of this thread
#endif
}

// Adding nothing is a write, and can't undo that of another thread.
void touch(char* begin, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes; at += kPage) {
        __atomic_fetch_add(reinterpret_cast<std::uint8_t*>(begin + at), 0, __ATOMIC_RELAXED);
    }
}

// False where the system has no memory left.
bool populate(char* begin, std::size_t bytes) {
#if defined(__linux__)
    constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, from Linux 5.14 on
    if (madvise(begin, bytes, kPopulateWrite) == 0) return true;
    if (errno != EINVAL) return false;
#endif
    touch(begin, bytes);
    return true;
}

// 0, or why it can't be done.
int collapse([[maybe_unused]] char* huge_page) {
#if defined(__linux__)
    constexpr int kCollapse = 25;  // MADV_COLLAPSE, from Linux 6.1 on
    return madvise(huge_page, kPiece, kCollapse) == 0 ? 0 : errno;
#else
    return ENOSYS;
#endif
}

bool try_to_collapse() {
    const std::unique_ptr<char, decltype(&std::free)> memory(
        static_cast<char*>(std::aligned_alloc(kPiece, kPiece)), std::free);
    if (!memory) return false;
    touch(memory.get(), 1);
    return collapse(memory.get()) == 0;
}

}  // namespace

bool can_collapse() {
    static const bool can = try_to_collapse();
    return can;
}

Prefault::Prefault(std::vector<Memory> parts, std::vector<Memory> small)
    : parts_(std::move(parts)), small_(std::move(small)), process_(getpid()) {
    try {
        thread_ = new std::thread([this] { run(); });
    } catch (const std::system_error&) {
    }
}

Prefault::~Prefault() {
    is_closing_ = true;
    if (!thread_ || process_ != getpid()) return;
    thread_->join();
    delete thread_;
}

void Prefault::run() {
    give_way();
    // No condition variable: in a forked process it could never be destroyed.
    for (auto waited = kPause.zero(); waited < kPause; waited += kLook) {
        if (is_closing_) return;
        std::this_thread::sleep_for(kLook);
    }
    collapse_small();
    is_done_ = touch_parts();
}

void Prefault::collapse_small() const {
#if defined(__linux__)
    // Where no huge page is free now, the system will look again.
    for (const Memory& part : small_) madvise(part.begin, part.bytes, MADV_HUGEPAGE);
#endif
    for (const Memory& part : small_) {
        for (std::size_t at = 0; at + kPiece <= part.bytes; at += kPiece) {
            if (is_closing_ || collapse(part.begin + at) == ENOMEM) return;
        }
    }
}

bool Prefault::touch_parts() const {
    std::size_t most = 0;
    for (const Memory& part : parts_) most = std::max(most, part.bytes);
    for (std::size_t at = 0; at < most; at += kPiece) {
        for (const Memory& part : parts_) {
            if (is_closing_) return false;
            if (at >= part.bytes) continue;
            if (!populate(part.begin + at, std::min(kPiece, part.bytes - at))) return false;
        }
    }
    return true;
}

}  // namespace inferno
