# options, log, JSON, files written durably, statistics, jobs, console
libs/examples/common/base := -pthread -lm -ldl
