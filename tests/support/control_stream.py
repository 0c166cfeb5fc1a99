"""One end of a connection of control messages (spec/control.md); who inherits makes its socket."""
# SPDX-License-Identifier: MIT
import struct

from cases import check


class Stream:
    def send(self, data):
        self.socket.sendall(data)

    def exactly(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise EOFError(data)
            data += more
        return data

    def receive(self):
        head = self.exactly(16)
        check(head[:5] == b"DXCT\x01" and head[5] == 0, head)
        kind, length, request = struct.unpack(">HII", head[6:])
        return kind, request, self.exactly(length)
