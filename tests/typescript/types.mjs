// Types of every event that an AsyncAPI document names, of its application properties, and of all events together.
//
//     node types.mjs ASYNCAPI FOLDER
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";

// What is installed beside the folder that is written to, and not beside this file.
const [document, folder] = process.argv.slice(2).map((each) => resolve(each));
const { compile } = createRequire(join(folder, "index.ts"))("json-schema-to-typescript");
const { components } = JSON.parse(readFileSync(document, "utf8"));
mkdirSync(folder, { recursive: true });

async function write(schema, name) {
  writeFileSync(join(folder, `${name}.ts`), await compile(schema, name, { bannerComment: "", format: false }));
}

const names = Object.keys(components.messages);
for (const name of names) {
  const file = join(dirname(document), components.messages[name].payload.$ref);
  await write({ ...JSON.parse(readFileSync(file, "utf8")), title: name }, name);
}
await write({ ...components.schemas.applicationProperties, title: "ApplicationProperties" }, "ApplicationProperties");
writeFileSync(
  join(folder, "index.ts"),
  [
    ...names.map((name) => `import type { ${name} } from "./${name}.js";`),
    `export type { ApplicationProperties } from "./ApplicationProperties.js";`,
    `export type { ${names.join(", ")} };`,
    `export type Event = ${names.join(" | ")};`,
  ].join("\n"),
);
