// A limit of calls that run at a time.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>

namespace slipway::detail {

/// Calls that run at a time. torch's container has such a limit of its own, but a call that is refused does
/// not wake those that wait there.
class Slots {
 public:
    explicit Slots(size_t count) : free_(count) {}

    class Taken {
     public:
        explicit Taken(Slots& slots) : slots_(slots) {
            std::unique_lock<std::mutex> lock(slots_.mutex_);
            slots_.returned_.wait(lock, [&] { return slots_.free_ > 0; });
            --slots_.free_;
        }
        ~Taken() {
            {
                const std::lock_guard<std::mutex> lock(slots_.mutex_);
                ++slots_.free_;
            }
            slots_.returned_.notify_one();
        }
        Taken(const Taken&) = delete;
        Taken& operator=(const Taken&) = delete;

     private:
        Slots& slots_;
    };

 private:
    std::mutex mutex_;
    std::condition_variable returned_;
    size_t free_;
};

}  // namespace slipway::detail
