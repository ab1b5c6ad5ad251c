// The system's own way to make pages ready, and touching them where it has none.
#include "prefault.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
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

}  // namespace

Prefault::Prefault(std::vector<Memory> parts) : parts_(std::move(parts)), process_(getpid()) {
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
    std::size_t most = 0;
    for (const Memory& part : parts_) most = std::max(most, part.bytes);
    for (std::size_t at = 0; at < most; at += kPiece) {
        for (const Memory& part : parts_) {
            if (is_closing_) return;
            if (at >= part.bytes) continue;
            if (!populate(part.begin + at, std::min(kPiece, part.bytes - at))) return;
        }
    }
    is_done_ = true;
}

}  // namespace inferno
