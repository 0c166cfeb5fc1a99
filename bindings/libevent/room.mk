# UDP and TCP by libevent
libs/bindings/libevent := -levent
pc/bindings/libevent := libevent
