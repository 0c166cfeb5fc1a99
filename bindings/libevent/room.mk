# UDP and TCP by libevent
libs/bindings/libevent := -levent
