// Without a default TTL the service ignores the TTL of items and the outbox grows for ever: -1 turns it on and lets
// nothing expire that does not say so. Each container indexes what is queried and nothing else, since every write
// pays for its indexes; /* excluded leaves the id, which is indexed in any case.
param name string
param location string
param tags object

@allowed(['serverless', 'autoscale'])
param capacity string
param maxThroughput int
param databaseName string

@description('What the service declares: [{ name, partition_key, ttl, indexes, composite_indexes }].')
param containers array

@description('The one of aggregates and events.')
param containerName string

@description('Who reads all, and the containers in which each writes: [{ principalId, writes }].')
param access array
param zoneRedundant bool

@description('The one that takes writes first.')
param regions string[]
param automaticFailover bool

@description('The emergency brake.')
param nothingExpires bool
param deleteLock bool
param dataPlaneLogs bool

@allowed(['Periodic', 'Continuous7Days', 'Continuous30Days'])
param backup string

@allowed(['Local', 'Zone', 'Geo'])
param periodicBackupRedundancy string

@description('Who may read the data, for preflight; empty: nobody.')
param readerPrincipalId string
param workspaceId string

@allowed(['Enabled', 'Disabled'])
param publicNetworkAccess string

var serverless = capacity == 'serverless'
var dataReader = '00000000-0000-0000-0000-000000000001'
var dataContributor = '00000000-0000-0000-0000-000000000002'
var grants = flatten(map(access, each => map(each.writes, container => { principalId: each.principalId, container: container })))

resource account 'Microsoft.DocumentDB/databaseAccounts@2024-11-15' = {
  name: name
  location: location
  tags: tags
  kind: 'GlobalDocumentDB'
  properties: {
    databaseAccountOfferType: 'Standard'
    locations: [for index in range(0, length(regions)): {
      locationName: regions[index]
      failoverPriority: index
      isZoneRedundant: zoneRedundant
    }]
    enableAutomaticFailover: automaticFailover
    enableMultipleWriteLocations: false
    consistencyPolicy: {
      defaultConsistencyLevel: 'Session'
    }
    capabilities: serverless ? [{ name: 'EnableServerless' }] : []
    // Azure's own values for periodic backups: every four hours, kept for eight.
    backupPolicy: backup == 'Periodic'
      ? {
          type: 'Periodic'
          periodicModeProperties: {
            backupIntervalInMinutes: 240
            backupRetentionIntervalInHours: 8
            backupStorageRedundancy: periodicBackupRedundancy
          }
        }
      : {
          type: 'Continuous'
          continuousModeProperties: {
            tier: backup
          }
        }
    disableLocalAuth: true
    minimalTlsVersion: 'Tls12'
    publicNetworkAccess: publicNetworkAccess
  }
}

resource database 'Microsoft.DocumentDB/databaseAccounts/sqlDatabases@2024-11-15' = {
  parent: account
  name: databaseName
  properties: {
    resource: {
      id: databaseName
    }
    options: serverless ? {} : { autoscaleSettings: { maxThroughput: maxThroughput } }
  }
}

// The functions extension makes no leases container under an identity: it must be here.
resource container 'Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers@2024-11-15' = [for each in containers: {
  parent: database
  name: each.name
  properties: {
    resource: {
      id: each.name
      partitionKey: {
        paths: each.partition_key
        kind: length(each.partition_key) == 1 ? 'Hash' : 'MultiHash'
        version: 2
      }
      defaultTtl: nothingExpires && each.name == containerName ? null : each.ttl
      indexingPolicy: {
        indexingMode: 'consistent'
        automatic: true
        includedPaths: map(each.indexes, path => { path: path })
        excludedPaths: contains(each.indexes, '/*') ? [] : [{ path: '/*' }]
        compositeIndexes: map(each.composite_indexes, paths => map(paths, path => { path: path, order: 'ascending' }))
      }
    }
  }
}]

// All read the database, which holds these containers and nothing else; each writes in its own containers. No role allows
// a change of containers or throughput. One after the other: the account takes no two changes at once.
@batchSize(1)
resource reading 'Microsoft.DocumentDB/databaseAccounts/sqlRoleAssignments@2024-11-15' = [for each in access: {
  parent: account
  name: guid(account.id, databaseName, each.principalId, dataReader)
  properties: {
    roleDefinitionId: '${account.id}/sqlRoleDefinitions/${dataReader}'
    principalId: each.principalId
    scope: '${account.id}/dbs/${database.name}'
  }
}]

@batchSize(1)
resource writing 'Microsoft.DocumentDB/databaseAccounts/sqlRoleAssignments@2024-11-15' = [for each in grants: {
  parent: account
  name: guid(account.id, databaseName, each.container, each.principalId, dataContributor)
  properties: {
    roleDefinitionId: '${account.id}/sqlRoleDefinitions/${dataContributor}'
    principalId: each.principalId
    scope: '${account.id}/dbs/${database.name}/colls/${each.container}'
  }
  dependsOn: [reading, container]
}]

resource preflightAccess 'Microsoft.DocumentDB/databaseAccounts/sqlRoleAssignments@2024-11-15' = if (!empty(readerPrincipalId)) {
  parent: account
  name: guid(account.id, databaseName, readerPrincipalId, dataReader)
  properties: {
    roleDefinitionId: '${account.id}/sqlRoleDefinitions/${dataReader}'
    principalId: readerPrincipalId
    scope: '${account.id}/dbs/${database.name}'
  }
  dependsOn: [writing]
}

// Nobody deletes the account, or anything in it but documents, by a mistake.
resource lock 'Microsoft.Authorization/locks@2020-05-01' = if (deleteLock) {
  name: 'no-deletion'
  scope: account
  properties: {
    level: 'CanNotDelete'
  }
}

// Who changed a container or its TTL; and who reads and writes documents, if somebody pays for it.
resource diagnostics 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: 'control-plane'
  scope: account
  properties: {
    workspaceId: workspaceId
    logAnalyticsDestinationType: 'Dedicated'
    logs: [for category in concat(['ControlPlaneRequests'], dataPlaneLogs ? ['DataPlaneRequests'] : []): {
      category: category
      enabled: true
    }]
  }
}

output id string = account.id
output name string = account.name
output endpoint string = account.properties.documentEndpoint
