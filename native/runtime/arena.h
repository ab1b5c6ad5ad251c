// Memory for what kernels compute: large slabs, of which pieces are lent and given back.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

namespace inferno {

// First fit in the order of addresses. A step allocates a few sizes again and again, so the list of
// gaps stays short. Slabs live as long as the arena.
class Arena {
   public:
    Arena() = default;
    ~Arena();
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    // Memory aligned to 64 bytes. Throws std::bad_alloc.
    void* take(std::size_t bytes);
    void give_back(void* memory, std::size_t bytes) noexcept;
    // Let the system have the pages of which no piece is lent; they are zeros when next touched.
    void release() noexcept;
    // Bytes of all slabs.
    std::size_t size() const;

   private:
    struct Gap {
        char* begin;
        std::size_t bytes;
    };
    void add_slab(std::size_t bytes);

    mutable std::mutex mutex_;
    std::vector<Gap> gaps_;  // by address; neighbours are joined
    std::vector<void*> slabs_;
    std::size_t num_lent_ = 0;  // pieces
    std::size_t size_ = 0;
};

}  // namespace inferno
