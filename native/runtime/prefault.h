// Makes memory's pages ready, or larger, before they are needed, in a thread of low priority that
// begins a moment later.
#pragma once

#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace inferno {

// A part of memory that begins and ends with a page of its own.
struct Memory {
    char* begin;
    std::size_t bytes;
};

// Whether the system can move what has been written to huge pages (Linux 6.1 and later).
bool can_collapse();

// The system gives a page when it is first touched, which takes longer than writing it; where the
// machine is a virtual one, ten times as long. What lies in the pages stays as it is, so that others
// may use them meanwhile. All parts are touched side by side, from their beginnings on. Before, those
// of `small`, which lie on small pages and begin with a huge one, are moved to huge pages; what is
// smaller than one is only allowed to be. Nothing depends on it: where the system refuses a thread
// nothing is done.
class Prefault {
   public:
    explicit Prefault(std::vector<Memory> parts, std::vector<Memory> small = {});
    ~Prefault();  // stops, wherever it is
    Prefault(const Prefault&) = delete;
    Prefault& operator=(const Prefault&) = delete;

    bool is_done() const { return is_done_; }

   private:
    void run();
    void collapse_small() const;
    bool touch_parts() const;

    const std::vector<Memory> parts_, small_;
    std::atomic<bool> is_closing_{false};
    std::atomic<bool> is_done_{false};
    // A process that was forked meanwhile has the object and not the thread, so it can't join it.
    const int process_;
    std::thread* thread_ = nullptr;
};

}  // namespace inferno
