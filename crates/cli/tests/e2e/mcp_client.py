"""A client of the Model Context Protocol that is not ours: the `mcp` package.

The first argument says how to connect, as JSON; every line on standard input is a step, and every line on
standard output is what came of it. What a tool gives back is held against the tool's own output schema.
"""

import asyncio
import json
import sys

import httpx2
import jsonschema
from mcp import MCPError
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client


def dump(model):
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def transport(how):
    if "command" in how:
        return stdio_client(
            StdioServerParameters(command=how["command"], args=how["args"], env=how["env"])
        )
    headers = {"Authorization": f"Bearer {how['token']}"} if how.get("token") else {}
    return streamable_http_client(how["url"], http_client=httpx2.AsyncClient(headers=headers))


async def call(client, schemas, name, arguments):
    result = dump(await client.call_tool(name, arguments))
    if not schemas:
        schemas.update({tool.name: tool.output_schema for tool in (await client.list_tools()).tools})
    # Errors too: the schema says how they look.
    jsonschema.Draft202012Validator(schemas[name]).validate(result["structuredContent"])
    return result


async def take(client, schemas, step, *arguments):
    match step:
        case "hello":
            return {
                "version": client.protocol_version,
                "server": dump(client.server_info),
                "capabilities": dump(client.server_capabilities),
                "instructions": client.instructions,
            }
        case "tools":
            listed = dump(await client.list_tools())["tools"]
            for tool in listed:
                jsonschema.Draft202012Validator.check_schema(tool["inputSchema"])
                jsonschema.Draft202012Validator.check_schema(tool["outputSchema"])
            return listed
        case "call":
            return await call(client, schemas, *arguments)
        case "templates":
            return dump(await client.list_resource_templates())["resourceTemplates"]
        case "resources":
            listed, cursor = [], None
            while True:
                page = await client.list_resources(cursor=cursor, cache_mode="bypass")
                listed += dump(page)["resources"]
                cursor = page.next_cursor
                if cursor is None:
                    return listed
        case "read":
            return dump(await client.read_resource(*arguments, cache_mode="bypass"))["contents"]
    raise ValueError(f"no such step: {step}")


async def main():
    how = json.loads(sys.argv[1])
    loop = asyncio.get_running_loop()
    async with Client(transport(how), mode=how["mode"]) as client:
        schemas = {}
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            try:
                said = {"ok": await take(client, schemas, *json.loads(line))}
            except MCPError as error:
                said = {"error": dump(error.error)}
            print(json.dumps(said), flush=True)


asyncio.run(main())
