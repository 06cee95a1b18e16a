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
param containerName string
param leaseContainerName string
param parkedContainerName string
param claimContainerName string
param directoryContainerName string

@description('The properties by which a list of aggregates can be filtered, as found_by of each names them.')
param foundBy string[]

@description('The texts by which the entries of the read model are searched, as its EntrySchema names them.')
param directorySearchedBy string[]

@description('Those of them by which a list of entries can be sorted.')
param directorySortedBy string[]
param setAsideContainerName string
param effectsContainerName string

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

resource contacts 'Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers@2024-11-15' = {
  parent: database
  name: containerName
  properties: {
    resource: {
      id: containerName
      partitionKey: {
        paths: ['/partitionKey']
        kind: 'Hash'
        version: 2
      }
      defaultTtl: nothingExpires ? null : -1
      indexingPolicy: {
        indexingMode: 'consistent'
        automatic: true
        includedPaths: concat([{ path: '/type/?' }, { path: '/data/deleted/?' }, { path: '/data/createdAt/?' }], map(foundBy, name => { path: '/data/${name}/?' }))
        excludedPaths: [
          { path: '/*' }
        ]
        compositeIndexes: [
          [{ path: '/type', order: 'ascending' }, { path: '/data/createdAt', order: 'ascending' }, { path: '/id', order: 'ascending' }]
          [{ path: '/type', order: 'ascending' }, { path: '/_ts', order: 'ascending' }, { path: '/id', order: 'ascending' }]
        ]
      }
    }
  }
}

// The functions extension makes no leases container under an identity: it must be here. A TTL of -1 lets the lock that
// an instance takes while it creates the leases go away by itself.
resource leases 'Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers@2024-11-15' = {
  parent: database
  name: leaseContainerName
  properties: {
    resource: {
      id: leaseContainerName
      partitionKey: {
        paths: ['/id']
        kind: 'Hash'
        version: 2
      }
      defaultTtl: -1
      indexingPolicy: {
        indexingMode: 'consistent'
        automatic: true
        includedPaths: []
        excludedPaths: [
          { path: '/*' }
        ]
      }
    }
  }
}

resource parked 'Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers@2024-11-15' = {
  parent: database
  name: parkedContainerName
  properties: {
    resource: {
      id: parkedContainerName
      partitionKey: {
        paths: ['/partitionKey']
        kind: 'Hash'
        version: 2
      }
      defaultTtl: -1
      indexingPolicy: {
        indexingMode: 'consistent'
        automatic: true
        includedPaths: [
          { path: '/type/?' }
          { path: '/aggregateType/?' }
          { path: '/aggregateId/?' }
          { path: '/position/?' }
          { path: '/parkedAt/?' }
        ]
        excludedPaths: [
          { path: '/*' }
        ]
      }
    }
  }
}

// Claims of idempotency keys are found by their id; each has a TTL of its own.
resource claims 'Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers@2024-11-15' = {
  parent: database
  name: claimContainerName
  properties: {
    resource: {
      id: claimContainerName
      partitionKey: {
        paths: ['/partitionKey']
        kind: 'Hash'
        version: 2
      }
      defaultTtl: -1
      indexingPolicy: {
        indexingMode: 'consistent'
        automatic: true
        includedPaths: []
        excludedPaths: [
          { path: '/*' }
        ]
      }
    }
  }
}

// The read model is searched over all partitions. Sorting is by two properties, which takes a composite index each.
resource directory 'Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers@2024-11-15' = {
  parent: database
  name: directoryContainerName
  properties: {
    resource: {
      id: directoryContainerName
      partitionKey: {
        paths: ['/partitionKey']
        kind: 'Hash'
        version: 2
      }
      defaultTtl: -1
      indexingPolicy: {
        indexingMode: 'consistent'
        automatic: true
        includedPaths: concat([{ path: '/deleted/?' }], map(directorySearchedBy, name => { path: '/search/${name}/?' }))
        excludedPaths: [
          { path: '/*' }
        ]
        compositeIndexes: map(directorySortedBy, name => [
          { path: '/search/${name}', order: 'ascending' }
          { path: '/id', order: 'ascending' }
        ])
      }
    }
  }
}

resource setAside 'Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers@2024-11-15' = {
  parent: database
  name: setAsideContainerName
  properties: {
    resource: {
      id: setAsideContainerName
      partitionKey: {
        paths: ['/partitionKey']
        kind: 'Hash'
        version: 2
      }
      defaultTtl: -1
      indexingPolicy: {
        indexingMode: 'consistent'
        automatic: true
        includedPaths: [
          { path: '/state/?' }
          { path: '/setAsideAt/?' }
          { path: '/triedAt/?' }
          { path: '/aggregateType/?' }
          { path: '/aggregateId/?' }
        ]
        excludedPaths: [
          { path: '/*' }
        ]
      }
    }
  }
}

resource effects 'Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers@2024-11-15' = if (!empty(effectsContainerName)) {
  parent: database
  name: effectsContainerName
  properties: {
    resource: {
      id: effectsContainerName
      partitionKey: {
        paths: ['/partitionKey']
        kind: 'Hash'
        version: 2
      }
      defaultTtl: -1
      indexingPolicy: {
        indexingMode: 'consistent'
        automatic: true
        includedPaths: []
        excludedPaths: [
          { path: '/*' }
        ]
      }
    }
  }
}

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
  dependsOn: [reading, contacts, leases, parked, claims, directory, setAside, effects]
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
