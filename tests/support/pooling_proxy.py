"""A proxy that sends the requests of all clients from one address, on pooled connections."""

import asyncio
import threading
from contextlib import closing, suppress

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class PoolingProxy:
    """The proxy in a thread of its own, for a server on this machine, as a context manager.

    It names each client in X-Forwarded-For, and ends the request of a client that disconnects.
    """

    def __init__(self, server_port: int) -> None:
        self.server_port, self.port = server_port, 0
        self.free: list[Connection] = []
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    def __enter__(self) -> "PoolingProxy":
        self.thread.start()
        start = asyncio.start_server(self.serve, "127.0.0.1", 0, backlog=4000)
        self.server = asyncio.run_coroutine_threadsafe(start, self.loop).result()
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        async def stop() -> None:
            self.server.close()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks or {asyncio.create_task(asyncio.sleep(0))})
            for _, writer in self.free:
                writer.transport.abort()

        asyncio.run_coroutine_threadsafe(stop(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve the requests of one client."""
        with (
            closing(writer),
            suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError),
        ):
            while await self.pass_on(reader, writer):
                pass

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Pass one request and its response on; return whether the connection can have another."""
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(header(head, b"content-length") or 0)
        client = writer.get_extra_info("peername")[0].encode()
        server_reader, server_writer = await self.connect()
        task, is_complete = asyncio.create_task(self.answer(server_reader, writer)), False
        try:
            server_writer.write(head[:-2] + b"X-Forwarded-For: " + client + b"\r\n\r\n")
            while length and (data := await reader.read(min(length, 1 << 16))):
                server_writer.write(data)
                length -= len(data)
            left = asyncio.create_task(reader.read(1))  # a client sends no more until the answer
            await asyncio.wait({task, left}, return_when=asyncio.FIRST_COMPLETED)
            left.cancel()
            await asyncio.wait({left})
            is_complete = task.done() and await task and left.cancelled() and not length
        finally:
            task.cancel()
            if is_complete:
                self.free.append((server_reader, server_writer))
            else:
                server_writer.transport.abort()
        return is_complete

    async def connect(self) -> Connection:
        while self.free:
            reader, writer = self.free.pop()
            if not reader.at_eof() and not writer.is_closing():
                return reader, writer
            writer.transport.abort()
        return await asyncio.open_connection("127.0.0.1", self.server_port)

    @staticmethod
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Pass a response on; return whether it is complete and the server keeps the connection."""
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(head)
        if header(head, b"transfer-encoding") == b"chunked":
            size = 1
            while size:
                line = await reader.readuntil(b"\r\n")
                size = int(line, 16)
                writer.write(line + await reader.readexactly(size + 2))
                await writer.drain()
        else:
            writer.write(await reader.readexactly(int(header(head, b"content-length") or 0)))
            await writer.drain()
        return header(head, b"connection") != b"close"


def header(head: bytes, name: bytes) -> bytes:
    """Return a header of a request or response in lower case, or nothing."""
    for line in head.lower().split(b"\r\n"):
        if line.startswith(name + b":"):
            return line.partition(b":")[2].strip()
    return b""
