"""The local Azure: loopback servers, speaking what real SDKs speak. Never deployed; imports only ``changefeed``."""
