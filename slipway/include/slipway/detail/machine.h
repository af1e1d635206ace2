// What compiled code needs of the process that loads it: the processor, torch, and libraries of operators.
#pragma once

#include <dlfcn.h>
#include <sys/utsname.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "slipway/detail/error.h"

namespace slipway::detail {

/// The processor's flags, by Linux's names.
inline const std::set<std::string>& processor_flags() {
    static const std::set<std::string> flags = [] {
        std::set<std::string> found;
        std::ifstream file("/proc/cpuinfo");
        for (std::string line; std::getline(file, line);) {
            if (line.rfind("flags", 0) != 0 && line.rfind("Features", 0) != 0) continue;
            std::istringstream words(line.substr(line.find(':') + 1));
            for (std::string word; words >> word;) found.insert(word);
            break;
        }
        return found;
    }();
    return flags;
}

/// Refuse code for another machine: torch only warns, and then crashes or computes wrong numbers.
inline void require_architecture(const std::string& built_for, const std::string& artifact) {
    // A level alone ("x86_64 avx2") means all of x86-64-v3 or v4.
    static const std::vector<std::string> v3 = {"avx", "avx2", "bmi1",  "bmi2", "f16c",
                                                "fma", "abm",  "movbe", "xsave"};
    static const std::vector<std::string> v4 = {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"};
    std::istringstream words(built_for);
    std::string machine;
    words >> machine;
    std::vector<std::string> needed;
    for (std::string word; words >> word;) needed.push_back(word == "avx512" ? "avx512f" : word);
    if (needed.size() == 1 && (needed[0] == "avx2" || needed[0] == "avx512f")) {
        const bool is_v4 = needed[0] == "avx512f";
        needed = v3;
        if (is_v4) needed.insert(needed.end(), v4.begin(), v4.end());
    }
    utsname here{};
    uname(&here);
    std::string lacking = machine == here.machine ? "" : machine;
    for (const auto& flag : needed)
        if (processor_flags().count(flag) == 0) lacking += (lacking.empty() ? "" : ", ") + flag;
    if (!lacking.empty())
        throw Error("machine_unfit", artifact + " was built for " + built_for + ", and this machine lacks " +
                                         lacking + ": load it on such a machine, or export for this one");
}

/// The version of the libtorch that this process runs, as "2.13.0".
inline std::string running_torch() {
    const uint64_t version = aoti_torch_abi_version();
    const auto part = [&](int shift) { return std::to_string((version >> shift) & 0xFF); };
    return part(56) + "." + part(48) + "." + part(40);
}

/// Refuse code that another release of torch has compiled: "2.13.0+cpu" and "2.13.1" are builds of one.
inline void require_torch(const std::string& compiled_by, const std::string& artifact) {
    const auto release = [](const std::string& version) {
        return version.substr(0, version.find('.', version.find('.') + 1));
    };
    if (release(compiled_by) != release(running_torch()))
        throw Error("versions_differ", artifact + " was compiled by torch " + compiled_by +
                                           ", and this process runs " + running_torch() +
                                           ": load it with the same torch, or export it for this one");
}

/// The folder that holds the Python package torch, and with it those of its operators' libraries.
inline std::filesystem::path folder_beside_torch() {
    Dl_info found{};
    if (dladdr(reinterpret_cast<const void*>(&aoti_torch_abi_version), &found) == 0) return {};
    return std::filesystem::path(found.dli_fname).parent_path().parent_path().parent_path();
}

/// Load the libraries of a Python module's operators, once in a process: all of them in the module's folder.
///
/// The folder is looked for in `folders` and beside torch.
inline void load_operators(const std::string& module, std::vector<std::string> folders,
                           const std::string& artifact) {
    static std::mutex loading;
    static std::set<std::string> loaded;
    const std::lock_guard<std::mutex> lock(loading);
    if (loaded.count(module) > 0) return;
    std::string below = module;
    std::replace(below.begin(), below.end(), '.', '/');
    folders.push_back(folder_beside_torch().string());
    std::vector<std::filesystem::path> libraries;
    for (const auto& folder : folders) {
        std::error_code missing;
        for (const auto& entry :
             std::filesystem::directory_iterator(std::filesystem::path(folder) / below, missing))
            if (entry.path().extension() == ".so") libraries.push_back(entry.path());
        if (!libraries.empty()) break;
    }
    if (libraries.empty())
        throw Error("operators_missing", artifact + " needs the operators of " + module +
                                             ", of which there is no library in " + folders.front() +
                                             (folders.size() > 1 ? " or beside torch" : "") +
                                             ": name the folder that holds " + below +
                                             " (operators written in Python run in Python only)");
    std::sort(libraries.begin(), libraries.end());
    for (const auto& library : libraries)
        if (dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr)
            throw Error("operators_missing", std::string("the operators of ") + module + ": " + dlerror());
    loaded.insert(module);
}

}  // namespace slipway::detail
